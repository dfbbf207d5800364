from django.db import migrations

# Hours in which a turn told its input or its output only are counted once more: it counted as one that told both.
MARK = """
DO $$
DECLARE
  project uuid;
BEGIN
  PERFORM set_config('app.directory', 'on', true);
  FOR project IN SELECT id FROM registry_project LOOP
    PERFORM set_config('app.project_id', project::text, true);
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT project_id, date_bin('1 hour', at, TIMESTAMPTZ '2000-01-01 00:00+00') FROM feedback_turn
    WHERE project_id = project AND (input_tokens IS NULL) <> (output_tokens IS NULL);
  END LOOP;
  PERFORM set_config('app.project_id', '', true), set_config('app.directory', '', true);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("feedback", "0012_page_reads"), ("registry", "0001_initial")]
    operations = [migrations.RunSQL(MARK, migrations.RunSQL.noop)]
