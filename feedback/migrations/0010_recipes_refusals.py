import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import registry.tenancy
from registry.tenancy import protect


def of_project():
    return models.ForeignKey(
        default=registry.tenancy.project_of_new_row,
        on_delete=django.db.models.deletion.CASCADE,
        related_name="+",
        to="registry.project",
    )


class Migration(migrations.Migration):
    dependencies = [("feedback", "0004_review"), ("registry", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="RecipeActivation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("actor", models.CharField(max_length=200)),
                ("project", of_project()),
                (
                    "recipe",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="activations",
                        to="feedback.labelrecipe",
                    ),
                ),
            ],
            options={"abstract": False},
        ),
        migrations.CreateModel(
            name="LastRefusal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=40)),
                ("outcome", models.CharField(max_length=20)),
                ("field", models.CharField(blank=True, default="", max_length=200)),
                ("message", models.TextField(blank=True, default="")),
                ("item_id", models.CharField(max_length=128, null=True)),
                ("count", models.PositiveBigIntegerField(default=0)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("project", of_project()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "key", "outcome"), name="one_refusal_per_outcome")
                ]
            },
        ),
        migrations.AddIndex(
            model_name="usersignal",
            index=models.Index(
                condition=models.Q(("session_ref__isnull", False)),
                fields=["project", "session_ref", "at"],
                name="signal_by_session",
            ),
        ),
        *protect("feedback_recipeactivation", "feedback_lastrefusal"),
    ]
