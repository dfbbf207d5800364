from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rl_online", "0003_judged_pairs")]

    operations = [
        migrations.AddField(
            model_name="rewardbatch",
            name="files_deleted_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="rewardbatch",
            name="files_deleted_reason",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
    ]
