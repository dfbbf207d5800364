"""Price cards may be copied from a list and have variants; a project has budgets; an engine's hours are kept."""

import django.contrib.postgres.fields
import django.db.models.deletion
import registry.tenancy
from django.db import migrations, models
from django.db.models import Q

from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0011_idempotent_calls'),
    ]

    operations = [
        migrations.AlterField('pricecard', 'model', models.CharField(max_length=300)),
        migrations.AddField('pricecard', 'variants', models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
        migrations.AddField('pricecard', 'source', models.CharField(blank=True, db_default='', default='', max_length=80)),
        migrations.AddField('pricecard', 'listed_as', models.CharField(blank=True, db_default='', default='', max_length=200)),
        migrations.AddField('pricecard', 'url', models.CharField(blank=True, db_default='', default='', max_length=500)),
        migrations.RemoveConstraint('pricecard', 'one_card_per_date'),
        migrations.AddConstraint(
            'pricecard',
            models.UniqueConstraint(
                condition=Q(('source', '')), fields=('project', 'model', 'valid_from'), name='one_card_per_date'
            ),
        ),
        migrations.AddConstraint(
            'pricecard',
            models.UniqueConstraint(
                condition=Q(('source', ''), _negated=True),
                fields=('project', 'model', 'valid_from'),
                name='one_listed_card_per_date',
            ),
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('total', 'Total'), ('inference', 'Inference'), ('training', 'Training'), ('judging', 'Judging')], max_length=9)),
                ('period', models.CharField(choices=[('day', 'Day'), ('month', 'Month')], max_length=5)),
                ('usd', models.DecimalField(decimal_places=4, max_digits=14)),
                ('alert_percents', django.contrib.postgres.fields.ArrayField(base_field=models.PositiveSmallIntegerField(), default=list, size=None)),
                ('stops', models.BooleanField(default=False)),
                ('spent_until', models.DateTimeField(null=True)),
                ('changed_by', models.CharField(blank=True, default='', max_length=200)),
                ('changed_at', models.DateTimeField(auto_now=True)),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'kind', 'period'), name='one_budget_of_a_kind'),
                    models.CheckConstraint(condition=Q(('usd__gt', 0), ('usd__lt', 10000000000)), name='budget_is_a_price'),
                    models.CheckConstraint(condition=Q(('kind__in', ['total', 'inference', 'training', 'judging']), ('period__in', ['day', 'month'])), name='budget_kind_known'),
                ],
            },
        ),
        migrations.CreateModel(
            name='DeviceRollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('engine', models.CharField(max_length=100)),
                ('hour', models.DateTimeField()),
                ('held_ms', models.PositiveIntegerField()),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'hour', 'engine'), name='one_device_rollup'),
                    models.CheckConstraint(condition=Q(('held_ms__lte', 3600000)), name='an_hour_has_3600_s'),
                ],
            },
        ),
        *protect('registry_budget', 'registry_devicerollup'),
    ]
