from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('feedback', '0014_share_reads'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='asks_back',
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='has_bad_call',
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='is_without_edit',
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name='turnrollup',
            name='asked_back',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='turnrollup',
            name='bad_calls',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='turnrollup',
            name='with_conduct',
            field=models.PositiveIntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='turnrollup',
            name='without_edit',
            field=models.PositiveIntegerField(db_default=0),
        ),
    ]
