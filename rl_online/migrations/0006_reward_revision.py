from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rl_online", "0005_dry_runs_engines")]

    operations = [
        migrations.AddField(
            model_name="batchsample", name="reward_revision", field=models.PositiveIntegerField(default=0)
        ),
        migrations.RemoveConstraint(model_name="batchsample", name="correction_once"),
        migrations.AddConstraint(
            model_name="batchsample",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_correction", True)),
                fields=("project", "turn_ref", "label_id", "reward_revision"),
                name="correction_once",
            ),
        ),
    ]
