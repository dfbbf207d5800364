import django.db.models.deletion
import django.utils.timezone
import registry.tenancy
from django.db import migrations, models

from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0010_price_cards'),
    ]

    operations = [
        migrations.CreateModel(
            name='IdempotentCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255)),
                ('request_hash', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField(null=True)),
                ('body', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', 'created_at'], name='idempotent_by_time')],
                'constraints': [models.UniqueConstraint(fields=('project', 'key'), name='idempotency_key_in_project')],
            },
        ),
        *protect("registry_idempotentcall"),
    ]
