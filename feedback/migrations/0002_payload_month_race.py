from django.db import migrations

# to_regclass answers from a cache that waiting for an advisory lock does not refresh: two first requests of a month
# could both try to make its partition. A query of pg_class after the lock sees what the other one committed.
SQL = """
CREATE OR REPLACE FUNCTION feedback_ensure_payload_month(moment timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
DECLARE
  first timestamptz := date_trunc('month', moment AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
  after timestamptz := (date_trunc('month', moment AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
  name text := 'feedback_turnpayload_' || to_char(moment AT TIME ZONE 'UTC', 'YYYYMM');
BEGIN
  IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = 'public'::regnamespace) THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext(name));
  IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = 'public'::regnamespace) THEN RETURN; END IF;
  EXECUTE format('CREATE TABLE %I PARTITION OF feedback_turnpayload FOR VALUES FROM (%L) TO (%L)', name, first, after);
  EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant ON %I USING '
                 '(project_id = NULLIF(current_setting(''app.project_id'', true), '''')::uuid)', name);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("feedback", "0001_initial")]

    operations = [migrations.RunSQL(SQL, migrations.RunSQL.noop)]
