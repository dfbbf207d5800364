from django.apps import AppConfig


class FeedbackConfig(AppConfig):
    name = "feedback"

    def ready(self) -> None:
        from feedback.services import label
        from jobs import handlers

        handlers.register("feedback.label", label.handle_label)
        handlers.register("feedback.settle", label.handle_settle)
        handlers.register("feedback.expire", label.handle_expire)
        handlers.schedule("feedback.settle", 2, label.ask_for_settling)
        handlers.schedule("feedback.expire", 600, label.ask_for_expiry)
