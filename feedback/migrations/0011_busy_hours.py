import django.db.models.deletion
from django.db import migrations, models

import registry.tenancy
from registry.tenancy import protect

# Hours that were counted before this table was there are counted once more.
MARK_ALL = """
DO $$
DECLARE
  project uuid;
BEGIN
  PERFORM set_config('app.directory', 'on', true);
  FOR project IN SELECT id FROM registry_project LOOP
    PERFORM set_config('app.project_id', project::text, true);
    INSERT INTO feedback_dirtyhour (project_id, hour)
    SELECT DISTINCT project, hour FROM feedback_turnrollup WHERE version IS NOT NULL;
  END LOOP;
  PERFORM set_config('app.project_id', '', true), set_config('app.directory', '', true);
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('feedback', '0010_recipes_refusals'),
        ('registry', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='BusyRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('busy_us', models.PositiveBigIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'hour'), name='one_busy_rollup')],
            },
        ),
        *protect('feedback_busyrollup'),
        migrations.RunSQL(MARK_ALL, migrations.RunSQL.noop),
    ]
