from django.db import migrations

# What a teacher says about a turn follows from what its user wrote, and the ids it held likely decode to it. Whoever
# takes away or changes what a turn says clears that in the same statement: nobody has to remember it. The row stays for
# what it cost.
TRIGGER = """
CREATE FUNCTION rl_online_clear_teacher_answers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rl_online_teacheranswer SET text = '', reasoning = '', likely = NULL, error = ''
  WHERE turn_id = (SELECT id FROM feedback_turn WHERE project_id = OLD.project_id AND turn_id = OLD.turn_id);
  RETURN NULL;
END $$;

CREATE TRIGGER clear_teacher_answers
  AFTER DELETE OR UPDATE OF messages, prompt, completion, tool_calls, prompt_token_ids, completion_token_ids
  ON feedback_turnpayload FOR EACH ROW EXECUTE FUNCTION rl_online_clear_teacher_answers();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('feedback', '0001_initial'),
        ('rl_online', '0019_reward_models'),
    ]

    operations = [migrations.RunSQL(TRIGGER, migrations.RunSQL.noop)]
