from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rl_online", "0009_heldout_samples")]

    operations = [
        migrations.AddField(model_name="alarm", name="calm_at", field=models.DateTimeField(null=True)),
    ]
