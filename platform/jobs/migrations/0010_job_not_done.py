from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state", "done"), _negated=True), fields=["project_id", "kind"], name="job_not_done"
            ),
        ),
    ]
