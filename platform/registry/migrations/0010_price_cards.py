"""Prices are numbers from 0 on, and a card is never changed."""

from django.db import migrations, models
from django.db.models import Q

FREEZE = """
CREATE FUNCTION registry_price_card_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'price card % is immutable; add another from a later date', OLD.id USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER price_card_immutable BEFORE UPDATE ON registry_pricecard
  FOR EACH ROW EXECUTE FUNCTION registry_price_card_is_immutable();
"""
THAW = """
DROP TRIGGER price_card_immutable ON registry_pricecard;
DROP FUNCTION registry_price_card_is_immutable();
"""


def is_price(name: str) -> Q:
    return Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": 0, f"{name}__lt": 10**10})


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0004_notifications'),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='pricecard',
            constraint=models.CheckConstraint(
                condition=is_price("input_usd")
                & is_price("cache_read_usd")
                & is_price("cache_write_usd")
                & is_price("output_usd")
                & is_price("device_hour_usd"),
                name='prices_not_negative',
            ),
        ),
        migrations.RunSQL(FREEZE, THAW),
    ]
