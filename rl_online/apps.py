from django.apps import AppConfig


class RlOnlineConfig(AppConfig):
    name = "rl_online"
