import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evals", "0005_judges_at_work"), ("rl_online", "0011_canary_looks")]

    operations = [
        migrations.AddField(model_name="learningplan", name="gate_suites", field=models.JSONField(default=list)),
        migrations.AddField(
            model_name="learningplan",
            name="gate_judge",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="evals.judgeversion"
            ),
        ),
    ]
