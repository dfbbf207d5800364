from django.db import migrations, models


# What the pages count by hour since this version marks its hour too, and hours counted before are counted once more.
MARK_TURNS = """
CREATE OR REPLACE FUNCTION feedback_mark_turns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT project_id, date_bin('1 hour', at, TIMESTAMPTZ '2000-01-01 00:00+00') FROM fresh;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT project_id, date_bin('1 hour', at, TIMESTAMPTZ '2000-01-01 00:00+00') FROM gone;
  ELSE
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT changed.project_id, date_bin('1 hour', moment, TIMESTAMPTZ '2000-01-01 00:00+00')
    FROM (SELECT fresh.project_id, fresh.at AS fresh_at, gone.at AS gone_at FROM fresh JOIN gone USING (id)
          WHERE (fresh.at, fresh.policy, fresh.version, fresh.model, fresh.source, fresh."user", fresh.error IS NULL,
                 fresh.is_shown, fresh.settled_at IS NULL, fresh.outcome, fresh.input_tokens, fresh.cache_read_tokens,
                 fresh.cache_write_tokens, fresh.output_tokens, fresh.reasoning_tokens, fresh.latency_ms, fresh.ttft_ms,
                 fresh.has_logprobs, fresh.received_at)
            IS DISTINCT FROM
                (gone.at, gone.policy, gone.version, gone.model, gone.source, gone."user", gone.error IS NULL,
                 gone.is_shown, gone.settled_at IS NULL, gone.outcome, gone.input_tokens, gone.cache_read_tokens,
                 gone.cache_write_tokens, gone.output_tokens, gone.reasoning_tokens, gone.latency_ms, gone.ttft_ms,
                 gone.has_logprobs, gone.received_at)
         ) changed, unnest(ARRAY[fresh_at, gone_at]) AS moment;
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT fresh.project_id, date_bin('1 hour', signal.at, TIMESTAMPTZ '2000-01-01 00:00+00')
    FROM fresh JOIN gone USING (id) JOIN feedback_usersignal signal ON signal.turn_id = fresh.id
    WHERE (fresh.policy, fresh.version, fresh.model, fresh.source)
      IS DISTINCT FROM (gone.policy, gone.version, gone.model, gone.source);
  END IF;
  RETURN NULL;
END $$;
"""
MARK_ALL = """
DO $$
DECLARE
  project uuid;
BEGIN
  PERFORM set_config('app.directory', 'on', true);
  FOR project IN SELECT id FROM registry_project LOOP
    PERFORM set_config('app.project_id', project::text, true);
    INSERT INTO feedback_dirtyhour (project_id, hour) SELECT DISTINCT project, hour FROM feedback_turnrollup;
  END LOOP;
  PERFORM set_config('app.project_id', '', true), set_config('app.directory', '', true);
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('feedback', '0011_busy_hours'),
        ('registry', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='turnrollup',
            name='from_future',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='turnrollup',
            name='without_logprobs',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddIndex(
            model_name='flag',
            index=models.Index(fields=['project', '-created_at'], name='flag_by_time'),
        ),
        migrations.AddIndex(
            model_name='turn',
            index=models.Index(condition=models.Q(('label__isnull', False), ('settled_at__isnull', False)), fields=['project', 'policy', '-settled_at', '-turn_id'], name='turn_by_settling'),
        ),
        migrations.AddIndex(
            model_name='usersignal',
            index=models.Index(condition=models.Q(('expired_at__isnull', True), ('turn__isnull', True), ('turn_ref__isnull', False)), fields=['project', 'received_at', 'id'], name='signal_waiting'),
        ),
        migrations.RunSQL(MARK_TURNS, migrations.RunSQL.noop),
        migrations.RunSQL(MARK_ALL, migrations.RunSQL.noop),
    ]
