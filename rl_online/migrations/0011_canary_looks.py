import django.db.models.deletion
from django.db import migrations, models

import registry.tenancy
from registry.tenancy import protect


class Migration(migrations.Migration):
    dependencies = [("registry", "0011_idempotent_calls"), ("rl_online", "0010_alarm_calm_at")]

    operations = [
        migrations.AddField(model_name="learningplan", name="live_limits", field=models.JSONField(default=dict)),
        migrations.CreateModel(
            name="CanaryLook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("started_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("decision", models.CharField(max_length=10)),
                ("reasons", models.JSONField()),
                ("evidence", models.JSONField()),
                (
                    "checkpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="canary_looks",
                        to="registry.checkpoint",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        default=registry.tenancy.project_of_new_row,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="registry.project",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["checkpoint", "-at"], name="look_by_checkpoint")]},
        ),
        *protect("rl_online_canarylook"),
    ]
