"""The database itself refuses to change a benchmark that is complete, i.e. has its digest."""

from django.db import migrations

FREEZE = """
CREATE FUNCTION evals_refuse_frozen_problem() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM evals_benchmark WHERE id = NEW.benchmark_id AND digest <> '') THEN
    RAISE EXCEPTION 'benchmark % is immutable; make a new version', NEW.benchmark_id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER frozen_problem BEFORE INSERT OR UPDATE ON evals_problem
  FOR EACH ROW EXECUTE FUNCTION evals_refuse_frozen_problem();

CREATE FUNCTION evals_refuse_frozen_benchmark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.digest <> '' AND (NEW.digest, NEW.name, NEW.version, NEW.is_held_out)
      IS DISTINCT FROM (OLD.digest, OLD.name, OLD.version, OLD.is_held_out) THEN
    RAISE EXCEPTION 'benchmark % is immutable; make a new version', OLD.id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER frozen_benchmark BEFORE UPDATE ON evals_benchmark
  FOR EACH ROW EXECUTE FUNCTION evals_refuse_frozen_benchmark();
"""
THAW = """
DROP TRIGGER frozen_problem ON evals_problem;
DROP FUNCTION evals_refuse_frozen_problem();
DROP TRIGGER frozen_benchmark ON evals_benchmark;
DROP FUNCTION evals_refuse_frozen_benchmark();
"""


class Migration(migrations.Migration):
    dependencies = [("evals", "0001_initial")]
    operations = [migrations.RunSQL(FREEZE, THAW)]
