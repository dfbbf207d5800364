"""The study's own numbers come back, and importing twice changes nothing."""

import csv
import gzip

import pytest

from feedback.importers.realhumaneval import COLUMNS, FILE, import_realhumaneval
from feedback.models import AgentSession, Label, Turn, UserSignal
from feedback.selectors import accept_share
from registry.errors import InvalidInput
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db


def test_the_known_answers_of_the_study_come_back_and_a_second_import_changes_nothing(data, project):
    folder = data("realhumaneval")
    progress = []
    first = import_realhumaneval(project.id, folder, on_progress=lambda done, of: progress.append((done, of)))
    assert (first.turns, first.sessions, first.users) == (1055, 388, 107)
    assert first.outcomes == {"accepted": first.turns + first.signals}
    assert progress[-1] == (1055, 1055)
    again = import_realhumaneval(project.id, folder)
    assert again.outcomes == {"duplicate": first.turns + first.signals}
    with tenant(project.id):
        found = {group.key: (group.accepted, group.turns) for group in accept_share(by="model", source="import")}
        assert found == {
            "GPT-3.5 (chat)": (112, 305),
            "GPT-4o (chat)": (105, 280),
            "CodeLlama34b (chat)": (64, 227),
            "CodeLlama7b (chat)": (81, 243),
        }
        assert (Turn.objects.count(), Label.objects.count(), AgentSession.objects.count()) == (1055, 1055, 388)
        assert UserSignal.objects.filter(turn=None).count() == 0
        assert not Turn.objects.filter(has_logprobs=True).exists()


def write(folder, **fields) -> None:
    row = {
        "request": "[{'role': 'user', 'content': 'sum?'}]", "response": "use sum()", "copy_events": "[]",
        "logprobs": "{'mean': -0.2}", "programmer_id": "7", "timestamp": "12.5", "model": "m", "task_name": "t",
    } | fields  # fmt: skip
    with gzip.open(folder / FILE, "wt", newline="") as handle:
        writer = csv.DictWriter(handle, sorted(COLUMNS))
        writer.writeheader()
        writer.writerow(row)


def test_an_empty_list_of_copy_events_is_an_answer_shown_and_ignored(tmp_path, project):
    write(tmp_path)
    import_realhumaneval(project.id, tmp_path)
    with tenant(project.id):
        assert list(UserSignal.objects.order_by("at").values_list("kind", flat=True)) == ["shown", "ignore"]
        assert Turn.objects.get().outcome == "silence"


def test_literals_are_parsed_and_never_run(tmp_path, project):
    write(tmp_path, copy_events="__import__('os').system('touch pwned')")
    with pytest.raises(InvalidInput, match="row 1 of 7/t/m"):
        import_realhumaneval(project.id, tmp_path)


def test_a_folder_without_the_file_says_what_is_missing(tmp_path, project):
    with pytest.raises(InvalidInput, match=FILE):
        import_realhumaneval(project.id, tmp_path)
