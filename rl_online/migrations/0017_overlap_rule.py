from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('rl_online', '0016_corpus'),
    ]

    operations = [
        migrations.AddField(
            model_name='overlapcheck',
            name='rule',
            field=models.CharField(db_default='', default='', max_length=40),
        ),
    ]
