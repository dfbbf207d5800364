import django.db.models.deletion
from django.db import migrations, models

import registry.ids
import registry.tenancy
from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('evals', '0002_frozen_benchmarks'),
        ('registry', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='CanaryRun',
            fields=[
                ('id', models.UUIDField(default=registry.ids.new_uuid, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('failed', 'Failed')], default='running', max_length=8)),
                ('standing', models.CharField(max_length=12, null=True)),
                ('sentence', models.TextField(blank=True, default='')),
                ('results', models.JSONField(default=list)),
                ('num_calls', models.PositiveIntegerField(default=0)),
                ('num_unpriced', models.PositiveIntegerField(default=0)),
                ('cost_usd', models.DecimalField(decimal_places=10, max_digits=20, null=True)),
                ('error', models.TextField(blank=True, default='')),
                ('requested_by', models.CharField(max_length=200)),
                ('requested_at', models.DateTimeField(auto_now_add=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('judge', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='canary_runs', to='evals.judgeversion')),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', 'judge', '-requested_at'], name='canaries_by_judge')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('judge',), name='one_canary_run_at_a_time')],
            },
        ),
        *protect('evals_canaryrun'),
        migrations.AddIndex(
            model_name='comparison',
            index=models.Index(fields=['project', '-created_at'], name='comparison_by_time'),
        ),
        migrations.AddIndex(
            model_name='judgecall',
            index=models.Index(fields=['project', '-created_at'], name='call_by_time'),
        ),
        migrations.AddIndex(
            model_name='evalrun',
            index=models.Index(fields=['project', 'checkpoint', '-started_at'], name='run_of_checkpoint'),
        ),
        migrations.AddIndex(
            model_name='evalrun',
            index=models.Index(fields=['project', 'model', '-started_at'], name='run_of_model'),
        ),
    ]
