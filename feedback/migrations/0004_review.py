import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import registry.tenancy
from registry.tenancy import protect

# Overrides made before revisions were counted become revision 1, so that those of turns learnt earlier are seen as
# changes. What their batch already learnt makes a difference of nothing, which is no correction.
REVISE = """
DO $$
DECLARE
  project uuid;
BEGIN
  PERFORM set_config('app.directory', 'on', true);
  FOR project IN SELECT id FROM registry_project LOOP
    PERFORM set_config('app.project_id', project::text, true);
    UPDATE feedback_turn SET reward_revision = 1 WHERE project_id = project AND reward_override IS NOT NULL;
  END LOOP;
  PERFORM set_config('app.project_id', '', true), set_config('app.directory', '', true);
END $$;
"""


def of_project():
    return models.ForeignKey(
        default=registry.tenancy.project_of_new_row,
        on_delete=django.db.models.deletion.CASCADE,
        related_name="+",
        to="registry.project",
    )


def key():
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def of(model, name):
    return models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name=name, to=model)


class Migration(migrations.Migration):
    dependencies = [("feedback", "0003_rollups"), ("registry", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="reward_revision",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(REVISE, migrations.RunSQL.noop),
        migrations.AddField(
            model_name="flag", name="raised_by", field=models.CharField(max_length=200, null=True)
        ),
        migrations.RemoveConstraint(model_name="flag", name="one_flag_per_rule"),
        migrations.AddConstraint(
            model_name="flag",
            constraint=models.UniqueConstraint(
                condition=models.Q(("rule__in", ("by_hand", "sample")), _negated=True),
                fields=("turn", "rule"),
                name="one_flag_per_rule",
            ),
        ),
        migrations.AddConstraint(
            model_name="flag",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "open")), fields=("turn", "rule"), name="one_open_flag_per_rule"
            ),
        ),
        migrations.AddIndex(
            model_name="flag",
            index=models.Index(
                condition=models.Q(("state", "resolved")), fields=["project", "-resolved_at"], name="flag_resolved"
            ),
        ),
        migrations.AddIndex(
            model_name="flag",
            index=models.Index(fields=["project", "rule", "-created_at"], name="flag_by_rule"),
        ),
        migrations.CreateModel(
            name="ReviewResponse",
            fields=[
                ("id", key()),
                ("submission", models.UUIDField()),
                ("reviewer", models.CharField(max_length=200)),
                (
                    "resolution",
                    models.CharField(
                        choices=[("fine", "Fine"), ("excluded", "Excluded"), ("overridden", "Overridden")],
                        max_length=10,
                    ),
                ),
                ("reward", models.FloatField(null=True)),
                (
                    "gold",
                    models.CharField(
                        choices=[
                            ("accept", "Accept"),
                            ("reject", "Reject"),
                            ("silence", "Silence"),
                            ("unknown", "Unknown"),
                        ],
                        max_length=7,
                        null=True,
                    ),
                ),
                ("problem", models.CharField(max_length=300, null=True)),
                ("note", models.TextField(blank=True, default="")),
                ("is_late", models.BooleanField(default=False)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("withdrawn_at", models.DateTimeField(null=True)),
                ("flag", of("feedback.flag", "responses")),
                ("project", of_project()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["project", "reviewer", "-at"], name="response_by_reviewer"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("withdrawn_at__isnull", True)),
                        fields=("flag", "reviewer"),
                        name="one_response_per_reviewer",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("resolution", "overridden"), ("reward__gte", -1), ("reward__lte", 1)),
                            models.Q(
                                models.Q(("resolution", "overridden"), _negated=True), ("reward__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="reward_iff_overridden",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("gold__isnull", True), ("gold__in", ["accept", "reject"]), _connector="OR"
                        ),
                        name="gold_is_a_verdict",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReviewReservation",
            fields=[
                ("id", key()),
                ("slot", models.PositiveSmallIntegerField(default=0)),
                ("reviewer", models.CharField(max_length=200)),
                ("taken_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("lease_until", models.DateTimeField()),
                ("project", of_project()),
                ("turn", of("feedback.turn", "reservations")),
            ],
            options={
                "indexes": [
                    models.Index(fields=["project", "lease_until"], name="reservation_by_lease"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("turn", "slot"), name="one_reviewer_per_slot"),
                    models.UniqueConstraint(fields=("turn", "reviewer"), name="one_reservation_per_reviewer"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReviewDraft",
            fields=[
                ("id", key()),
                ("reviewer", models.CharField(max_length=200)),
                ("body", models.JSONField(default=dict)),
                ("skipped_at", models.DateTimeField(null=True)),
                ("saved_at", models.DateTimeField(auto_now=True)),
                ("project", of_project()),
                ("turn", of("feedback.turn", "drafts")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("turn", "reviewer"), name="one_draft_per_reviewer"),
                ],
            },
        ),
        *protect("feedback_reviewresponse", "feedback_reviewreservation", "feedback_reviewdraft"),
    ]
