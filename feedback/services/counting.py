"""The queries that count the turns and signals of whole hours [start, end), one for each table of counts."""

from feedback.rollups import LAST_BUCKET, PER_OCTAVE

HOUR_OF = "date_bin('1 hour', {at}, TIMESTAMPTZ '2000-01-01 00:00+00')"  # knows no time zone of the session
_SIGNAL_HOUR = HOUR_OF.format(at="s.at")
_HOUR = HOUR_OF.format(at="t.at")
_TURNS = "FROM feedback_turn t WHERE t.project_id = %(project)s AND t.at >= %(start)s AND t.at < %(end)s"
_IS_SETTLED = "t.is_shown AND t.settled_at IS NOT NULL"
# Input without output, or the other way round, prices nothing: such a turn counts as one that told no tokens.
_TOLD = "t.input_tokens IS NOT NULL AND t.output_tokens IS NOT NULL"
_BEGAN = f"(extract(epoch FROM t.at - {_HOUR}) * 1000000)::bigint"  # microseconds into its hour
_MICROSECONDS = "round(least(greatest(t.latency_ms, 0), 1e9) * 1000)::bigint"
COUNTS: dict[str, tuple[str, str]] = {  # table -> (columns after project_id, the SELECT that counts them)
    "feedback_turnrollup": (
        "hour, policy, version, model, source, turns, errors, shown, settled, accepted, rejected, silent, unknown, "
        "with_usage, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, "
        "with_latency, latency_us, without_logprobs, from_future, "
        "with_conduct, bad_calls, asked_back, without_edit",
        f"""
        SELECT %(project)s::uuid, {_HOUR}, t.policy, t.version, t.model, t.source, count(*), count(t.error),
          count(*) FILTER (WHERE t.is_shown), count(*) FILTER (WHERE {_IS_SETTLED}),
          count(*) FILTER (WHERE {_IS_SETTLED} AND t.outcome = 'accept'),
          count(*) FILTER (WHERE {_IS_SETTLED} AND t.outcome = 'reject'),
          count(*) FILTER (WHERE {_IS_SETTLED} AND t.outcome = 'silence'),
          count(*) FILTER (WHERE {_IS_SETTLED} AND coalesce(t.outcome, 'unknown') = 'unknown'),
          count(*) FILTER (WHERE {_TOLD}),
          coalesce(sum(t.input_tokens) FILTER (WHERE {_TOLD}), 0),
          coalesce(sum(t.cache_read_tokens) FILTER (WHERE {_TOLD}), 0),
          coalesce(sum(t.cache_write_tokens) FILTER (WHERE {_TOLD}), 0),
          coalesce(sum(t.output_tokens) FILTER (WHERE {_TOLD}), 0),
          coalesce(sum(t.reasoning_tokens) FILTER (WHERE {_TOLD}), 0),
          count(t.latency_ms), coalesce(sum({_MICROSECONDS}), 0),
          count(*) FILTER (WHERE t.version IS NOT NULL AND NOT t.has_logprobs),
          count(*) FILTER (WHERE t.at > t.received_at + interval '5 seconds'), count(t.asks_back),
          count(*) FILTER (WHERE t.has_bad_call), count(*) FILTER (WHERE t.asks_back),
          count(*) FILTER (WHERE t.is_without_edit)
        {_TURNS} GROUP BY {_HOUR}, t.policy, t.version, t.model, t.source
        """,
    ),
    "feedback_userrollup": (
        'hour, policy, version, model, source, "user", turns, settled, accepted',
        f"""
        SELECT %(project)s::uuid, {_HOUR}, t.policy, t.version, t.model, t.source, t."user", count(*),
          count(*) FILTER (WHERE {_IS_SETTLED}), count(*) FILTER (WHERE {_IS_SETTLED} AND t.outcome = 'accept')
        {_TURNS} GROUP BY {_HOUR}, t.policy, t.version, t.model, t.source, t."user"
        """,
    ),
    "feedback_latencyrollup": (
        "hour, policy, version, model, source, measure, bucket, turns",
        f"""
        SELECT %(project)s::uuid, {_HOUR}, t.policy, t.version, t.model, t.source, of.measure,
          CASE WHEN of.ms < 1 THEN 0
               ELSE least({LAST_BUCKET}, 1 + floor({PER_OCTAVE} * ln(of.ms) / ln(2::float8))) END::smallint, count(*)
        FROM (SELECT t.* {_TURNS}) t
        CROSS JOIN LATERAL (VALUES ('latency', t.latency_ms), ('ttft', t.ttft_ms)) AS of(measure, ms)
        WHERE of.ms IS NOT NULL
        GROUP BY {_HOUR}, t.policy, t.version, t.model, t.source, of.measure, 8
        """,  # noqa: S608 - literals above
    ),
    "feedback_busyrollup": (
        "hour, busy_us",
        f"""
        SELECT %(project)s::uuid, hour,
          sum(greatest(0, ended_us - greatest(began_us, coalesce(reached_us, began_us))))::bigint
        FROM (
          SELECT hour, began_us, ended_us, max(ended_us) OVER (
            PARTITION BY hour ORDER BY began_us, ended_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
          ) AS reached_us
          FROM (
            SELECT {_HOUR} AS hour, {_BEGAN} AS began_us, {_BEGAN} + {_MICROSECONDS} AS ended_us
            {_TURNS} AND t.version IS NOT NULL AND t.latency_ms IS NOT NULL AND t.source <> 'import'
          ) spans
        ) ordered GROUP BY hour
        """,  # noqa: S608 - literals above
    ),
    "feedback_signalrollup": (
        "hour, policy, version, model, source, kind, signals",
        f"""
        SELECT %(project)s::uuid, {_SIGNAL_HOUR}, t.policy, t.version, t.model, t.source, s.kind, count(*)
        FROM feedback_usersignal s LEFT JOIN feedback_turn t ON t.id = s.turn_id
        WHERE s.project_id = %(project)s AND s.at >= %(start)s AND s.at < %(end)s
        GROUP BY {_SIGNAL_HOUR}, t.policy, t.version, t.model, t.source, s.kind
        """,  # noqa: S608 - literals above
    ),
}
