import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import registry.tenancy
from registry.tenancy import protect


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('page', models.CharField(max_length=60)),
                ('name', models.CharField(max_length=80)),
                ('query', models.CharField(max_length=4000)),
                ('is_shared', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(default=registry.tenancy.project_of_new_row, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='registry.project')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'page', 'owner', 'name'), name='view_name_of_owner'),
                    models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='view_has_a_name'),
                ],
            },
        ),
        *protect("registry_savedview"),
    ]
