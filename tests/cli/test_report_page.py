"""A report as a page: nothing from data becomes markup, it asks for nothing, and it stays small."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemlog.logs.audit.audit_span import Finding
from tandemlog.logs.jobs.job_result import Drawn, JobResult
from tandemlog_server.cli.report import plots
from tandemlog_server.cli.report.job_report import parts_of, title_of, verdict_of
from tandemlog_server.cli.report.markup import element, html_text, plain, short
from tandemlog_server.cli.report.page import (
    MOST_ROWS,
    Figure,
    Part,
    Report,
    Table,
    Verdict,
    page,
    policy,
    time_text,
)
from tandemlog_server.cli.report.style import DARK, LIGHT, STYLE

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</title></svg></style><b>",
    "<!-- ",
    "]]>",
    "&lt;b&gt; &amp; &#60;",
    "\x00\x1b[31m\x07\x85",
    "\udcff\udc80",
    "\u202eevil\u2066",
    "`code`",
    "a\r\nb\tc",
)
TEXTS = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=()), max_size=40)
)
VOID = {"meta", "rect", "line", "circle"}
ATTRIBUTES = {
    "aria-describedby", "aria-label", "aria-labelledby", "charset", "class", "content", "cx", "cy",
    "height", "http-equiv", "id", "lang", "name", "r", "role", "scope", "tabindex", "width", "x",
    "x1", "x2", "y", "y1", "y2",
}  # fmt: skip


class Parsed(HTMLParser):
    """The elements of a page with the names of their attributes, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.classes: set[str] = set()
        self.texts: list[str] = []
        self.others: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # how wide a column is depends on what is in it
        names = tuple(sorted(name for name, _ in attrs if name != "class"))
        self.elements.append((tag, names))
        self.classes |= {value or "" for name, value in attrs if name == "class"}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)


def report_of(text: str) -> Report:
    """With `text` in each place that data can reach."""
    verdict = Verdict(False, text, text, ("Run `this`.",))
    table = Table(text, [{"name": text, "detail": text, "records": 3}])
    mark = plots.Mark(7, text)
    blocks: list[Table | Figure] = [
        table,
        Figure(text, plots.bars(text, [plots.Bar(text, 2, text)])),
        Figure(text, plots.histogram(text, [(text, 3)], (text, text), text)),
        Figure(text, plots.strip(text, (0, 10), [0, 5], [mark])),
    ]
    return Report(text, [("Store", text)], verdict, [Part(text, [text], blocks)])


@settings(max_examples=300)
@given(TEXTS)
def test_no_element_and_no_attribute_comes_from_data(text: str) -> None:
    written = page(report_of(text))
    written.encode()  # it is UTF-8, whatever the data are
    shown, harmless = Parsed(written), Parsed(page(report_of("x")))
    assert shown.elements == harmless.elements
    assert not shown.others
    assert {name for _, names in shown.elements for name in names} <= ATTRIBUTES
    assert shown.classes <= set(re.findall(r"\.([a-z]+)", STYLE)) | {"verdict bad"}
    if text.strip():
        # the whole text stands there: an entity in it is not read as the character
        assert short(text) in "".join(shown.texts)
    hidden = re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", written
    )
    assert hidden is None


@given(TEXTS, st.integers(3, 60))
def test_a_long_text_loses_its_middle(text: str, limit: int) -> None:
    cut = short(text, limit)
    assert len(cut) <= limit
    if len(plain(text)) > limit:
        assert cut.index("…") in (limit // 2 - 1, limit // 2, (limit - 1) // 2)
        assert plain(text).endswith(cut[-1])
    else:
        assert cut == plain(text)


def test_a_url_has_no_secret() -> None:
    text = "ftp://me:secret@backups/shop?sig=secret and s3://backups/shop: log 0..9"
    assert plain(text) == "ftp://***@backups/shop and s3://backups/shop: log 0..9"
    assert "secret" not in page(report_of(text))


def test_a_page_asks_for_nothing() -> None:
    written = page(report_of("http://example.com/x.js"))
    tags = {tag for tag, _ in Parsed(written).elements}
    assert not tags & {"script", "link", "img", "iframe", "a", "form", "object", "use", "image"}
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    rules = dict(rule.strip().split(" ", 1) for rule in policy().split(";"))
    assert rules["default-src"] == "'none'"
    assert "script-src" not in rules
    assert rules["style-src"].startswith("'sha256-")
    # before the policy nothing that it is to hold for
    assert written.index("Content-Security-Policy") < written.index("<style>")


def test_it_is_readable_by_a_screen_reader() -> None:
    written = page(report_of("orders"))
    for plot in re.findall(r"<svg.*?</svg>", written, re.DOTALL):
        named = re.search(r'aria-labelledby="(\S+)"', plot)
        described = re.search(r'aria-describedby="(\S+)"', plot)
        assert named
        assert described
        assert 'role="img"' in plot
        assert f'<title id="{named[1]}">' in plot
        assert re.search(f'<desc id="{described[1]}">[^<]+</desc>', plot)
    identities = re.findall(r' id="(\S+)"', written)
    assert len(identities) == len(set(identities)) == 6
    assert written.count("<caption>") == written.count("<table>") == 1
    assert written.count('<th scope="col"') == 3
    assert '<html lang="en">' in written


def luminance(color: str) -> float:
    """As WCAG 2 defines it."""
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_the_contrast_suffices(palette: dict[str, str]) -> None:
    for back in ("back", "panel"):
        for text in ("text", "muted", "good", "bad"):
            assert contrast(palette[text], palette[back]) >= 4.5, (text, back)
    for part, beside in (("bar", "back"), ("bar", "track"), ("bad", "track"), ("muted", "track")):
        assert contrast(palette[part], palette[beside]) >= 3, (part, beside)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def result_of(queues: int, faults: int) -> JobResult:
    """An audit of a log with long names and as much of everything as one may have."""
    names = [f"<&>{number}-" + "标签&" * 60 for number in range(queues)]
    result = JobResult("audit", {"records": queues, "topics": dict.fromkeys(names, 7)})
    result.rows = [
        {"file": f"/data/commitlog/{n:020d}", "records": n, "bytes": n} for n in range(queues)
    ]
    result.findings = [
        Finding("crc", "/data/commitlog/0", n, n + 9, "<&" * 500, names[n % queues], 0, n)
        for n in range(faults)
    ]
    result.notes = ["<note>" * 100] * faults
    result.drawn = Drawn(
        (0, queues * 100), [(f"/{n}", n * 100, n * 100 + 100) for n in range(queues)]
    )
    result.drawn.of_log.topic_bytes.update(dict.fromkeys(names, 1 << 40))
    result.drawn.of_log.times.counts.update({number: number for number in range(100)})
    result.drawn.of_log.sizes.update({number: number + 1 for number in range(24)})
    result.drawn.queues = [
        {"topic": name, "queue_id": 0, "records": 7, "bytes": number, "first": 0, "end": 7}
        for number, name in enumerate(names)
    ]
    result.drawn.groups = [
        {"group": name, "topic": name, "queue_id": 0, "committed": 0, "end": n, "lag": n}
        for n, name in enumerate(names)
    ]
    return result


def written(result: JobResult) -> str:
    facts = [("Command", "tandemlog verify")]
    return page(Report(title_of(result.job), facts, verdict_of(result), parts_of(result)))


def test_ten_thousand_queues_stay_below_a_megabyte() -> None:
    text = written(result_of(10_000, 2_000))
    assert len(text.encode()) < 1_000_000
    assert f"the {MOST_ROWS} with the most bytes, and 9,900 more that are not shown" in text
    assert f"the {MOST_ROWS} with the most lag, and 9,900 more that are not shown" in text
    assert f"the first {MOST_ROWS}, and 1,900 more that are not shown" in text
    assert "9,988 topics more" in text
    # the queue with the most bytes is there, the one with the least is not
    assert "&lt;&amp;&gt;9999-" in text
    assert "… and 1,950 more notes" in text


def test_a_small_result_is_there_whole() -> None:
    text = written(result_of(3, 1))
    assert "more that are not shown" not in text
    assert text.count("&lt;&amp;&gt;2-") > 3
    assert "Damaged: 1 fault" in text
    assert "tandemlog export COPY" in text


def test_the_verdict_stands_first() -> None:
    text = written(result_of(3, 0))
    assert text.index("Sound: no fault was found") < text.index("Command") < text.index("<svg")
    assert "What to do" not in text


def test_bars_are_as_long_as_their_values() -> None:
    drawn = html_text(plots.bars("t", [plots.Bar("a", 25, "25"), plots.Bar("b", 100, "100")]))
    assert re.findall(r'width="([\d.]+%?)" height="9" class="bar"', drawn) == ["100.00%", "25.00%"]
    nothing = html_text(plots.bars("t", [plots.Bar("a", 0, "0")]))
    assert 'width="0" height="9" class="bar"' in nothing


def test_a_mark_stands_where_its_offset_is() -> None:
    marks = [plots.Mark(150, "here"), plots.Mark(300, "behind the end")]
    drawn = html_text(plots.strip("t", (100, 200), [0, 100, 150], marks))
    assert re.findall(r'cx="([\d.]+)%"', drawn) == ["25.000", "100.000"]
    assert "2 marked, the first at offset 150, the last at 300" in drawn
    assert "nothing is marked" in html_text(plots.strip("t", (0, 0), [], []))


def test_a_histogram_has_a_bar_for_each_bin_with_something_in_it() -> None:
    plot = plots.histogram("t", [("a", 1), ("b", 0), ("c", 4)], ("begin", "end"), "messages")
    drawn = html_text(plot)
    assert re.findall(r'height="([\d.]+)" class="bar"', drawn) == ["37.5", "150.0"]
    assert "5 messages from begin to end; most at c: 4." in drawn
    empty = html_text(plots.histogram("t", [], ("", ""), "messages"))
    assert 'class="bar"' not in empty


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert time_text(-1) == ""
    assert time_text(1 << 62) == str(1 << 62)


def test_texts_between_elements_keep_their_order() -> None:
    made = element("p", "a", element("b", "c"), "d", None, "e", class_=None)
    assert html_text(made) == "<!DOCTYPE html>\n<p>a<b>c</b>de</p>\n"
