"""Migrate the database that DATABASE_URL names, each migration in a call of its own; prints how many there were."""

import django


def main() -> None:
    django.setup()
    from django.db import connections
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connections["owner"])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    state = None
    for migration, _ in plan:
        state = executor.migrate([(migration.app_label, migration.name)], state=state)
        executor.loader.build_graph()
    print(len(plan))


if __name__ == "__main__":
    main()
