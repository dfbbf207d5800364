import sys

import click

from strop.commands.base import chosen_home, json_option, print_json

MARKS = {"ok": "ok  ", "warning": "warn", "broken": "FAIL", "skipped": " -  "}


@click.command("doctor", epilog="Example: strop doctor --json")
@json_option
def command(as_json: bool) -> None:
    """Check this machine, the home, the servers and the work: what is missing, why it matters, how to mend it.

    Works before the first start and while everything runs; changes nothing. Exit 0 when nothing is broken (warnings may
    be there), 1 when something is.

    \b
    JSON: {"broken": n, "warnings": n, "findings": [{"check", "level", "found", "why", "fix"}]}
    with level one of ok, warning, broken, skipped
    """
    from strop.doctor.examine import examine
    from strop.doctor.finding import Level

    findings = []
    for finding in examine(chosen_home()):
        findings.append(finding)
        if not as_json:
            click.echo(f"{MARKS[finding.level]}  {finding.check:11} {finding.found}")
            if finding.why:
                click.echo(f"{'':18}{finding.why}\n{'':18}-> {finding.fix}")
    num_broken = sum(finding.level is Level.BROKEN for finding in findings)
    num_warnings = sum(finding.level is Level.WARNING for finding in findings)
    if as_json:
        rows = [finding.to_json() for finding in findings]
        print_json({"broken": num_broken, "warnings": num_warnings, "findings": rows})
    else:
        click.echo(f"\n{num_broken} broken, {num_warnings} to look at, {len(findings)} checks")
    sys.exit(1 if num_broken else 0)
