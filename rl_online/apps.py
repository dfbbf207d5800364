from django.apps import AppConfig


class RlOnlineConfig(AppConfig):
    name = "rl_online"

    def ready(self) -> None:
        from feedback.events import turns_settled
        from feedback.services import problem_links as feedback_links
        from jobs import handlers, listeners
        from rl_online import receivers
        from rl_online.services import (
            alarms,
            benchmark_runs,
            corpora,
            dry_runs,
            judging,
            live_experiments,
            live_judging,
            overlaps,
            policy_imports,
            price_lists,
            problem_links,
            proving,
            retention,
            runs,
            scoring,
            sealing,
            teachers,
            updates,
        )

        handlers.register(updates.CONSIDER_JOB, updates.consider_job)
        handlers.register(updates.SEAL_JOB, updates.seal_job)
        handlers.register(sealing.UPDATE_JOB, receivers.only_in_the_updater, queue="updater")
        handlers.register(dry_runs.DRY_RUN_JOB, receivers.only_in_the_updater, queue="updater")
        handlers.register(corpora.CORPUS_JOB, receivers.only_in_the_updater, queue="updater")
        handlers.register(runs.PROVE_JOB, proving.prove_job)
        handlers.register(live_experiments.WATCH_CANARY_JOB, live_experiments.watch_job)
        handlers.register(judging.JUDGE_JOB, judging.judge_job, queue="judge")
        handlers.register(benchmark_runs.RUN_JOB, benchmark_runs.run_job)
        listeners.when_quarantined(benchmark_runs.on_job_quarantined)
        handlers.register(live_judging.OPEN_JOB, live_judging.open_job)
        handlers.register(live_judging.SESSION_JOB, live_judging.session_job)
        handlers.register(live_judging.RATE_JOB, live_judging.rate_job, queue="judge")
        handlers.register(scoring.SCORE_JOB, scoring.score_job)
        handlers.register(retention.RETENTION_JOB, retention.retention_job)
        handlers.register(alarms.WATCH_JOB, alarms.watch_job)
        handlers.register(overlaps.OVERLAP_JOB, overlaps.overlap_job)
        handlers.register(teachers.ASK_JOB, teachers.ask_job, queue="judge")
        handlers.register(policy_imports.IMPORT_JOB, policy_imports.import_job)
        handlers.schedule("rl_online.watch", 30, alarms.ask_to_watch)
        handlers.schedule("rl_online.watch_canaries", live_experiments.LOOK_EVERY_S, live_experiments.ask_to_look)
        handlers.schedule("rl_online.price_lists", price_lists.LOOK_EVERY_S, price_lists.look_all)
        handlers.schedule("rl_online.overlap_rule", overlaps.LOOK_EVERY_S, overlaps.ask_after_another_rule)
        handlers.schedule("rl_online.retention", 24 * 3600, retention.ask_weekly)
        handlers.schedule("rl_online.consider", 2, updates.consider_all)
        turns_settled.connect(receivers.on_turns_settled, dispatch_uid="rl_online")
        turns_settled.connect(live_judging.on_turns_settled, dispatch_uid="rl_online.live_judging")
        feedback_links.register(problem_links.refused_links)
