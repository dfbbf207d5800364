from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0002_saved_views")]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="is_pinned",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="files_deleted_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="files_deleted_reason",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
    ]
