import django.db.models.deletion
import registry.tenancy
from django.db import migrations, models

from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0001_initial'),
        ('rl_online', '0006_reward_revision'),
    ]

    operations = [
        migrations.CreateModel(
            name='Alarm',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule', models.CharField(max_length=20)),
                ('subject', models.CharField(blank=True, default='', max_length=60)),
                ('severity', models.CharField(max_length=8)),
                ('state', models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('closed', 'Closed')], default='open', max_length=12)),
                ('summary', models.TextField()),
                ('about', models.CharField(blank=True, default='', max_length=300)),
                ('evidence', models.JSONField(default=dict)),
                ('opened_at', models.DateTimeField()),
                ('raised_at', models.DateTimeField()),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('acknowledged_by', models.CharField(blank=True, default='', max_length=200)),
                ('closed_at', models.DateTimeField(null=True)),
                ('closed_by', models.CharField(blank=True, default='', max_length=200)),
                ('note', models.TextField(blank=True, default='')),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', '-opened_at'], name='alarm_by_time')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'closed'), _negated=True), fields=('project', 'rule', 'subject'), name='one_standing_alarm'), models.CheckConstraint(condition=models.Q(('state__in', ['open', 'acknowledged', 'closed'])), name='alarm_state_known')],
            },
        ),
        *protect('rl_online_alarm'),
    ]
