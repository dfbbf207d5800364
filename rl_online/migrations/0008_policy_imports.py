import django.db.models.deletion
import registry.ids
import registry.tenancy
from django.db import migrations, models

from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0004_notifications'),
        ('rl_online', '0007_alarms'),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyImport',
            fields=[
                ('id', models.UUIDField(default=registry.ids.new_uuid, editable=False, primary_key=True, serialize=False)),
                ('name', models.SlugField(max_length=60)),
                ('source', models.CharField(max_length=500)),
                ('plan', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('storing', 'Storing'), ('registered', 'Registered'), ('failed', 'Failed')], default='queued', max_length=10)),
                ('progress', models.CharField(blank=True, default='', max_length=500)),
                ('notes', models.JSONField(default=list)),
                ('error', models.TextField(blank=True, default='')),
                ('num_starts', models.PositiveIntegerField(default=0)),
                ('requested_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('policy', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='registry.policy')),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', '-created_at'], name='import_by_time')],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'storing'])), fields=('project', 'name'), name='one_import_at_a_time'),
                    models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'storing', 'registered', 'failed'])), name='import_state_known'),
                ],
            },
        ),
        *protect("rl_online_policyimport"),
    ]
