from django.apps import AppConfig


class FeedbackConfig(AppConfig):
    name = "feedback"

    def ready(self) -> None:
        from feedback.services import label, rollups
        from jobs import handlers

        handlers.register("feedback.label", label.handle_label)
        handlers.register("feedback.settle", label.handle_settle)
        handlers.register("feedback.expire", label.handle_expire)
        handlers.register("feedback.rollup", rollups.handle_rollup)
        handlers.schedule("feedback.settle", 2, label.ask_for_settling)
        handlers.schedule("feedback.expire", 600, label.ask_for_expiry)
        handlers.schedule("feedback.rollup", 2, rollups.ask_for_rollups)
