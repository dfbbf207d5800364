"""The frame in Chromium: palette, keys, time range, peek, views, columns, ticks, refresh, theme, folding, a phone."""

import pytest

from feedback.models import Flag
from registry.tenancy import tenant
from tests.browser.looks import violations
from tests.console import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def at(visit, owner, loop):
    """at(path) -> an owner's visit to it."""

    def go(path, **options):
        visitor = visit("owner", **options)
        visitor.open(path)
        return visitor

    return go


def shoot(visitor, name):
    """What is on the screen, without the page below it."""
    visitor.shoot(name, whole=False)


def clean(visitor):
    assert violations(visitor.page) == [] and visitor.complaints == []


# --- Palette and keys ---


def test_the_palette_leads_to_a_page_by_keys_alone(at):
    visitor = at("/p/editor/overview")
    visitor.page.keyboard.press("Control+k")
    visitor.page.wait_for_selector("dialog.palette [role=option]")
    clean(visitor)
    shoot(visitor, "palette-light")
    visitor.page.keyboard.type("checkpo")
    visitor.page.wait_for_selector("[role=option][aria-selected=true]:has-text('Checkpoints')")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url("**/p/editor/checkpoints")


def test_a_pasted_id_leads_to_its_object(at, loop):
    visitor = at("/p/editor/overview")
    visitor.page.click("[data-palette-open]")
    visitor.page.keyboard.insert_text(str(loop.updates[0].id))
    visitor.page.wait_for_selector("[role=option][aria-selected=true]:has-text('Update')")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url(f"**/updates/{loop.updates[0].id}")


def test_the_palette_changes_the_theme(at):
    visitor = at("/p/editor/overview")
    visitor.page.keyboard.press("Meta+k")
    visitor.page.keyboard.type("dark")
    visitor.page.wait_for_selector("[role=option][aria-selected=true]:has-text('Dark theme')")
    visitor.page.keyboard.press("Enter")
    assert visitor.page.evaluate("document.documentElement.dataset.bsTheme") == "dark"
    visitor.page.keyboard.press("Meta+k")
    visitor.page.wait_for_selector("dialog.palette [role=option]")
    clean(visitor)
    shoot(visitor, "palette-dark")


def test_the_sheet_shows_every_key_and_g_goes(at):
    visitor = at("/p/editor/turns")
    visitor.page.keyboard.press("?")
    visitor.page.wait_for_selector("dialog.sheet[open]")
    clean(visitor)
    shoot(visitor, "keys-light")
    assert visitor.page.locator("dialog.sheet dt:has-text('j')").count() >= 1
    visitor.page.keyboard.press("Escape")
    visitor.page.keyboard.press("g")
    visitor.page.keyboard.press("c")
    visitor.page.wait_for_url("**/p/editor/checkpoints")


def test_keys_rest_while_a_person_types(at):
    visitor = at("/p/editor/turns")
    visitor.page.keyboard.press("/")
    visitor.page.keyboard.type("?gc")
    assert visitor.page.input_value("[data-query]") == "?gc"
    assert visitor.page.locator("dialog[open]").count() == 0


def test_the_sidebar_folds_and_stays_folded(at):
    visitor = at("/p/editor/sessions")
    visitor.page.keyboard.press("[")
    assert visitor.page.locator("aside.navbar").bounding_box()["width"] < 60
    visitor.open("/p/editor/turns")
    assert visitor.page.locator("aside.navbar").bounding_box()["width"] < 60
    clean(visitor)
    visitor.shoot("sidebar-folded")


def test_a_group_of_the_sidebar_folds_and_stays_folded(at):
    visitor = at("/p/editor/sessions")
    visitor.page.click(".place-group[data-group=Train] summary")
    visitor.open("/p/editor/turns")
    assert not visitor.page.locator(".place-group[data-group=Train]").evaluate("group => group.open")


# --- Time range ---


def test_a_preset_and_a_zone_are_chosen_and_are_in_the_address(at):
    visitor = at("/p/editor/turns")
    visitor.page.keyboard.press("t")
    visitor.page.wait_for_selector(".time-range-menu.show")
    clean(visitor)
    shoot(visitor, "time-range-light")
    visitor.page.click(".time-range-menu >> text=30d")
    visitor.page.wait_for_url("**range=30d**")
    visitor.page.keyboard.press("t")
    visitor.page.fill("[data-zone]", "Asia/Tokyo")
    visitor.page.click(".time-range-menu >> text=Apply")
    visitor.page.wait_for_url("**tz=Asia%2FTokyo**")
    assert "range=30d" in visitor.page.url  # only the zone changed: the range still moves with the clock
    assert "times in Asia/Tokyo" in visitor.page.inner_text("footer")
    visitor.open("/p/editor/signals")
    assert "times in Asia/Tokyo" in visitor.page.inner_text("footer")


def test_two_ends_are_set_by_hand(at):
    visitor = at("/p/editor/turns")
    visitor.page.keyboard.press("t")
    visitor.page.fill("#range-from", "2026-01-01T00:00")
    visitor.page.fill("#range-to", "2026-01-02T00:00")
    visitor.page.click(".time-range-menu >> text=Apply")
    visitor.page.wait_for_url("**from=2026-01-01T00%3A00**")
    assert "2026-01-01 00:00 to 2026-01-02 00:00" in visitor.page.inner_text("[data-time-range]")


def test_a_drag_over_a_chart_sets_the_range(at):
    visitor = at("/p/editor/overview?range=1h")
    visitor.page.wait_for_selector("[data-figure=rates] .nsewdrag")
    box = visitor.page.locator("[data-figure=rates] .nsewdrag").bounding_box()
    visitor.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    visitor.page.mouse.down()
    visitor.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2, steps=5)
    visitor.page.mouse.up()
    visitor.page.wait_for_url("**from=20**&to=20**")


def test_the_numbers_of_a_chart_are_saved_as_csv(at, tmp_path):
    visitor = at("/p/editor/overview?range=1h")
    visitor.page.wait_for_selector("[data-figure=shares] .nsewdrag")
    visitor.page.hover("[data-figure=shares]")
    with visitor.page.expect_download() as download:
        visitor.page.click("[data-figure=shares] ~ .plot-csv")
    download.value.save_as(tmp_path / "shares.csv")
    lines = (tmp_path / "shares.csv").read_text().splitlines()
    assert lines[0] == '"series","x","y","minus","plus","z"' and any("editor@2" in line for line in lines[1:])


# --- Lists ---


def test_a_row_opens_at_the_side_and_j_and_k_move(at, loop):
    visitor = at("/p/editor/turns")
    visitor.page.wait_for_selector(".facet")
    visitor.page.click("tr[data-peek] >> nth=0 >> td >> nth=2")
    visitor.page.wait_for_selector("[data-peek-body] .peek-content")
    shoot(visitor, "peek-light")
    clean(visitor)
    first = visitor.page.get_attribute("tr.is-peeked", "data-peek")
    visitor.page.keyboard.press("j")
    visitor.page.wait_for_function(f"document.querySelector('tr.is-peeked').dataset.peek !== {first!r}")
    visitor.page.keyboard.press("k")
    visitor.page.wait_for_function(f"document.querySelector('tr.is-peeked').dataset.peek === {first!r}")
    visitor.page.keyboard.press("Escape")
    assert visitor.page.locator("[data-peek-panel]").is_hidden()


def test_enter_in_a_peek_opens_the_whole_page(at):
    visitor = at("/p/editor/sessions")
    visitor.page.keyboard.press("j")
    visitor.page.wait_for_selector("[data-peek-body] .peek-content")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url("**/p/editor/sessions/*")
    assert visitor.complaints == []


def test_a_modified_click_opens_a_row_in_a_new_tab(at):
    visitor = at("/p/editor/sessions")
    with visitor.page.context.expect_page() as opened:
        visitor.page.click("tr[data-peek] >> nth=0 >> td >> nth=2", modifiers=["Control"])
    opened.value.wait_for_url("**/p/editor/sessions/*")
    assert visitor.page.locator("[data-peek-panel]").is_hidden()


def test_a_facet_narrows_the_list_and_widens_it_again(at):
    visitor = at("/p/editor/turns")
    visitor.page.click(".facet a:has-text('reject')")
    visitor.page.wait_for_url("**q=outcome%3Areject**")
    assert visitor.page.input_value("[data-query]") == "outcome:reject"
    assert set(visitor.page.locator("#results .state").all_inner_texts()) >= {"reject"}
    visitor.page.click(".facet a[aria-current]")
    visitor.page.wait_for_function("document.querySelector('[data-query]').value === ''")


def test_a_view_is_saved_opened_and_deleted(at):
    visitor = at("/p/editor/turns?q=outcome:reject&columns=at,user")
    visitor.page.click("text=Views")
    visitor.page.fill("#view-name", "rejected")
    shoot(visitor, "views-light")
    clean(visitor)
    visitor.page.click("text=Save view")
    visitor.page.wait_for_selector(".toast:has-text('Saved as rejected')")
    visitor.open("/p/editor/turns")
    visitor.page.click("text=Views")
    visitor.page.click(".views >> text=rejected")
    visitor.page.wait_for_url("**q=outcome%3Areject**")
    assert visitor.page.locator("#results thead th").all_inner_texts()[-2:] == ["When", "User"]
    visitor.page.on("dialog", lambda dialog: dialog.accept())
    visitor.page.click("text=Views")
    visitor.page.click("[aria-label='Delete the view rejected']")
    visitor.page.wait_for_selector(".toast:has-text('is gone')")


def test_columns_are_chosen_and_are_in_the_address(at):
    visitor = at("/p/editor/turns")
    visitor.page.click("button:has-text('Columns')")
    visitor.page.check(".columns-menu >> text=Language")
    visitor.page.uncheck(".columns-menu >> text=Signals")
    shoot(visitor, "columns-light")
    visitor.page.click(".columns-menu >> text=Show")
    visitor.page.wait_for_url("**columns=**language**")
    titles = visitor.page.locator("#results thead th").all_inner_texts()
    assert "Language" in titles and "Signals" not in titles


def test_a_key_of_the_sheet_goes_into_the_bar(at):
    visitor = at("/p/editor/turns")
    visitor.page.click("text=Query keys")
    shoot(visitor, "query-keys-light")
    clean(visitor)
    visitor.page.click("[data-query-key='latency_ms:']")
    assert visitor.page.input_value("[data-query]") == "latency_ms:"
    visitor.page.keyboard.type("much")
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_selector("[role=alert]:has-text('compares with a number')")
    clean(visitor)


def test_ticked_turns_are_flagged_for_review(at, project):
    visitor = at("/p/editor/turns")
    visitor.page.check("[data-pick] >> nth=0")
    visitor.page.locator("[data-pick] >> nth=2").click(modifiers=["Shift"])
    assert visitor.page.inner_text("[data-bulk-count]") == "3 ticked"
    visitor.shoot("ticked-light")
    clean(visitor)
    visitor.page.fill("#bulk-reason", "odd")
    visitor.page.click("text=Flag for review")
    visitor.page.wait_for_selector(".toast a:has-text('See them')")
    with tenant(project.id):
        assert Flag.objects.filter(rule="by_hand", reason="odd").count() == 3


def test_a_list_that_is_read_again_shows_what_came(at, project):
    visitor = at("/p/editor/turns?refresh=live")
    with tenant(project.id):
        factories.make_turn("just-now", completion="brand new")
    visitor.page.wait_for_selector("#results >> text=brand new")
    visitor.page.select_option("#refresh", "off")
    assert "refresh" not in visitor.page.url and visitor.complaints == []


def test_an_export_comes_as_a_file(at, tmp_path):
    visitor = at("/p/editor/turns?q=outcome:accept")
    visitor.page.click("text=Export")
    with visitor.page.expect_download() as download:
        visitor.page.click("text=JSON lines")
    download.value.save_as(tmp_path / "turns.jsonl")
    assert '"outcome": "accept"' in (tmp_path / "turns.jsonl").read_text()
    assert download.value.suggested_filename == "editor-turns.jsonl"


# --- Themes, a phone, errors ---


@pytest.mark.parametrize(("theme", "width"), [("dark", 1280), ("light", 390)])
def test_the_frame_is_clean_in_each_theme_and_on_a_phone(at, theme, width):
    visitor = at("/p/editor/turns", theme=theme, width=width)
    visitor.page.wait_for_selector(".facet", state="attached")
    visitor.shoot(f"turns-list-{theme}-{width}")
    clean(visitor)
    visitor.page.locator("tr[data-peek] td.said-cell").first.click()
    visitor.page.wait_for_selector("[data-peek-body] .peek-content")
    shoot(visitor, f"peek-{theme}-{width}")
    clean(visitor)
    wide = visitor.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    visitor.page.keyboard.press("Escape")
    visitor.page.keyboard.press("?")
    shoot(visitor, f"keys-{theme}-{width}")
    clean(visitor)


def test_the_phones_menu_opens_every_page(at):
    visitor = at("/p/editor/turns", width=390)
    visitor.page.click(".navbar-toggler")
    visitor.page.click(".nav-link:has-text('Signals')")
    visitor.page.wait_for_url("**/p/editor/signals")
    assert visitor.complaints == []


def test_a_request_that_fails_names_itself(at, site):
    visitor = at("/p/editor/turns")
    visitor.page.evaluate("htmx.ajax('GET', '/p/editor/no-such', {target: '#results'})")
    visitor.page.wait_for_selector(".toast-error:has-text('Request')")
