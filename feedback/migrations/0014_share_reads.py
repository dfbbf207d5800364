from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("feedback", "0013_whole_usage"), ("registry", "0001_initial")]
    operations = [
        migrations.AddIndex(
            model_name="userrollup",
            index=models.Index(
                condition=models.Q(("settled__gt", 0)),
                fields=["project", "policy", "version", "source", "user", "hour"],
                include=["settled", "accepted"],
                name="user_rollup_by_version",
            ),
        ),
    ]
