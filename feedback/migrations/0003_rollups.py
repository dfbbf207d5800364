import django.db.models.deletion
import registry.tenancy
from django.db import migrations, models

from registry.tenancy import protect

# Whoever writes turns or signals, however, marks their hours in the same statement: nobody has to remember it. An hour
# is cut by date_bin, which knows no time zone of the session. The marks are a log without a unique key, so that two
# writers of one hour do not wait for each other.
TRIGGERS = """
CREATE FUNCTION feedback_mark_turns() RETURNS trigger LANGUAGE plpgsql AS $$
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
                 fresh.cache_write_tokens, fresh.output_tokens, fresh.reasoning_tokens, fresh.latency_ms, fresh.ttft_ms)
            IS DISTINCT FROM
                (gone.at, gone.policy, gone.version, gone.model, gone.source, gone."user", gone.error IS NULL,
                 gone.is_shown, gone.settled_at IS NULL, gone.outcome, gone.input_tokens, gone.cache_read_tokens,
                 gone.cache_write_tokens, gone.output_tokens, gone.reasoning_tokens, gone.latency_ms, gone.ttft_ms)
         ) changed, unnest(ARRAY[fresh_at, gone_at]) AS moment;
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT fresh.project_id, date_bin('1 hour', signal.at, TIMESTAMPTZ '2000-01-01 00:00+00')
    FROM fresh JOIN gone USING (id) JOIN feedback_usersignal signal ON signal.turn_id = fresh.id
    WHERE (fresh.policy, fresh.version, fresh.model, fresh.source)
      IS DISTINCT FROM (gone.policy, gone.version, gone.model, gone.source);
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION feedback_mark_signals() RETURNS trigger LANGUAGE plpgsql AS $$
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
          WHERE (fresh.at, fresh.kind, fresh.turn_id) IS DISTINCT FROM (gone.at, gone.kind, gone.turn_id)
         ) changed, unnest(ARRAY[fresh_at, gone_at]) AS moment;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER mark_new AFTER INSERT ON feedback_turn
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_turns();
CREATE TRIGGER mark_changed AFTER UPDATE ON feedback_turn
  REFERENCING NEW TABLE AS fresh OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_turns();
CREATE TRIGGER mark_gone AFTER DELETE ON feedback_turn
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_turns();
CREATE TRIGGER mark_new AFTER INSERT ON feedback_usersignal
  REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_signals();
CREATE TRIGGER mark_changed AFTER UPDATE ON feedback_usersignal
  REFERENCING NEW TABLE AS fresh OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_signals();
CREATE TRIGGER mark_gone AFTER DELETE ON feedback_usersignal
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION feedback_mark_signals();
"""

# Hours of what was there before are counted by the first jobs after the upgrade.
MARK_ALL = """
DO $$
DECLARE
  project uuid;
BEGIN
  PERFORM set_config('app.directory', 'on', true);
  FOR project IN SELECT id FROM registry_project LOOP
    PERFORM set_config('app.project_id', project::text, true);
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT project, date_bin('1 hour', at, TIMESTAMPTZ '2000-01-01 00:00+00')
    FROM (SELECT at FROM feedback_turn UNION ALL SELECT at FROM feedback_usersignal) moments GROUP BY 2;
  END LOOP;
  PERFORM set_config('app.project_id', '', true), set_config('app.directory', '', true);
END $$;
"""
TABLES = (
    "feedback_dirtyhour", "feedback_turnrollup", "feedback_userrollup", "feedback_signalrollup",
    "feedback_latencyrollup",
)


class Migration(migrations.Migration):

    dependencies = [
        ('feedback', '0002_payload_month_race'),
        ('registry', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='DirtyHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('project', models.ForeignKey(db_constraint=False, default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', '-hour'], name='dirty_by_hour')],
            },
        ),
        migrations.CreateModel(
            name='LatencyRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('policy', models.CharField(max_length=60, null=True)),
                ('version', models.IntegerField(null=True)),
                ('model', models.CharField(max_length=200, null=True)),
                ('source', models.CharField(max_length=12, null=True)),
                ('measure', models.CharField(max_length=7)),
                ('bucket', models.SmallIntegerField()),
                ('turns', models.PositiveIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'hour', 'policy', 'version', 'model', 'source', 'measure', 'bucket'), name='one_latency_rollup', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='SignalRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('policy', models.CharField(max_length=60, null=True)),
                ('version', models.IntegerField(null=True)),
                ('model', models.CharField(max_length=200, null=True)),
                ('source', models.CharField(max_length=12, null=True)),
                ('kind', models.CharField(max_length=100)),
                ('signals', models.PositiveIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'hour', 'policy', 'version', 'model', 'source', 'kind'), name='one_signal_rollup', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='TurnRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('policy', models.CharField(max_length=60, null=True)),
                ('version', models.IntegerField(null=True)),
                ('model', models.CharField(max_length=200, null=True)),
                ('source', models.CharField(max_length=12, null=True)),
                ('turns', models.PositiveIntegerField()),
                ('errors', models.PositiveIntegerField()),
                ('shown', models.PositiveIntegerField()),
                ('settled', models.PositiveIntegerField()),
                ('accepted', models.PositiveIntegerField()),
                ('rejected', models.PositiveIntegerField()),
                ('silent', models.PositiveIntegerField()),
                ('unknown', models.PositiveIntegerField()),
                ('with_usage', models.PositiveIntegerField()),
                ('input_tokens', models.PositiveBigIntegerField()),
                ('cache_read_tokens', models.PositiveBigIntegerField()),
                ('cache_write_tokens', models.PositiveBigIntegerField()),
                ('output_tokens', models.PositiveBigIntegerField()),
                ('reasoning_tokens', models.PositiveBigIntegerField()),
                ('with_latency', models.PositiveIntegerField()),
                ('latency_us', models.PositiveBigIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'hour', 'policy', 'version', 'model', 'source'), name='one_turn_rollup', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='UserRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('policy', models.CharField(max_length=60, null=True)),
                ('version', models.IntegerField(null=True)),
                ('model', models.CharField(max_length=200, null=True)),
                ('source', models.CharField(max_length=12, null=True)),
                ('user', models.CharField(max_length=200, null=True)),
                ('turns', models.PositiveIntegerField()),
                ('settled', models.PositiveIntegerField()),
                ('accepted', models.PositiveIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'hour', 'policy', 'version', 'model', 'source', 'user'), name='one_user_rollup', nulls_distinct=False)],
            },
        ),
        *protect(*TABLES),
        migrations.RunSQL(TRIGGERS, migrations.RunSQL.noop),
        migrations.RunSQL(MARK_ALL, migrations.RunSQL.noop),
    ]
