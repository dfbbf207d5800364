from django.db import migrations, models


class Migration(migrations.Migration):
    """Batches sealed before have no marks: their samples count as taught, and a replay of one teaches them all."""

    dependencies = [("rl_online", "0008_policy_imports")]

    operations = [
        migrations.AddField(model_name="batchsample", name="is_heldout", field=models.BooleanField(default=False)),
    ]
