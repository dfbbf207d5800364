"""What this room tells rooms above it, in the transaction in which it happened."""

from django.dispatch import Signal

# turns_settled.send(sender=None, project_id=UUID, turn_ids=[Turn.pk, ...]): these turns got their first or a new label.
turns_settled = Signal()
