from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rl_online', '0013_overlaps'),
    ]

    operations = [
        migrations.AddField(
            model_name='updaterun',
            name='held',
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
    ]
