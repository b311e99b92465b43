//! Texts, tokens and answers of conversations are those of transformers; hostile templates are one line.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

const RECORDED: &str = include_str!("../../../tests/fixtures/chats.json");

#[derive(Deserialize)]
struct Recorded {
    special: Vec<String>,
    named: std::collections::BTreeMap<String, String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    chats: Vec<RecordedChat>,
}

#[derive(Deserialize)]
struct RecordedChat {
    chat: String,
    text: String,
    tokens: Vec<u32>,
    mask: Vec<u8>,
}

fn with_special(special: &[String]) -> Tokenizer {
    let mut file: Value = serde_json::from_slice(FILE).unwrap();
    let first = tokenizer().size();
    for (id, text) in (first..).zip(special) {
        let token = json!({
            "id": id, "content": text, "special": true, "normalized": false, "single_word": false,
            "lstrip": false, "rstrip": false,
        });
        file["added_tokens"].as_array_mut().unwrap().push(token);
    }
    Tokenizer::parse(file.to_string().as_bytes()).unwrap()
}

#[test]
fn answers_are_those_of_transformers() {
    let Recorded {
        special,
        named,
        cases,
    } = serde_json::from_str(RECORDED).unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let named: Vec<(String, String)> = named.clone().into_iter().collect();
        let mut tokenizer = with_special(&special);
        tokenizer
            .set_chat_template(&case.template, named.clone())
            .unwrap();
        let template = ChatTemplate::parse(&case.template, named).unwrap();
        assert_eq!(case.chats.len(), 3);
        for recorded in case.chats {
            let name = &case.name;
            let text = template.render(&recorded.chat).unwrap().text;
            assert_eq!(text, recorded.text, "{name}");
            let (tokens, mask): (Vec<_>, Vec<_>) = tokenizer
                .chat(&recorded.chat, None)
                .unwrap()
                .into_iter()
                .map(|(token, answered)| (token, u8::from(answered)))
                .unzip();
            assert_eq!((tokens, mask), (recorded.tokens, recorded.mask), "{name}");
        }
    }
}

fn rendered(template: &str, chat: Value) -> Result<String, ChatError> {
    let template = ChatTemplate::parse(template, Vec::new()).unwrap();
    template.render(&chat.to_string()).map(|chat| chat.text)
}

/// As Qwen3's: what was thought is written behind the last question alone, and in the last answer even if it is empty. Calls
/// begin a line of their own.
const FORGETFUL: &str = "{% set ns = namespace(asked=0) %}\
    {% for m in messages %}{% if m.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}\
    {% for m in messages %}<{{ m.role }}>\n{% set content = m.content if m.content is string else '' %}\
    {% set parts = content.split('</think>') %}\
    {% set thought = m.thinking or (parts[0].split('<think>')[-1] if parts | length > 1 else '') %}\
    {% if m.role == 'assistant' and loop.index0 > ns.asked and (loop.last or thought) %}<think>{{ thought }}</think>\n{% endif %}\
    {{- parts[-1] }}{% if m.calls %}{% if content %}{{ '\n' }}{% endif %}[{{ m.calls }}]{% endif %}<end>\n{% endfor %}\
    {% if add_generation_prompt %}<assistant>\n{% endif %}";

#[test]
fn answers_that_are_written_in_another_way_later_are_found() {
    let template = ChatTemplate::parse(FORGETFUL, Vec::new()).unwrap();
    let asked = |content: &str| json!({"role": "user", "content": content});
    let said = |content: &str| json!({"role": "assistant", "content": content});
    let answers = |messages: Value| {
        let chat = template.render(&json!({ "messages": messages }).to_string())?;
        let of = |range: &Range<usize>| chat.text[range.clone()].to_owned();
        Ok::<Vec<String>, ChatError>(chat.answers.iter().map(of).collect())
    };
    let thought = said("<think>hm</think>so");
    let found = answers(json!([
        asked("a"),
        thought,
        asked("so"),
        said("so"),
        asked("b"),
        thought
    ]));
    assert_eq!(
        found.unwrap(),
        ["so<end>\n", "so<end>\n", "<think>hm</think>\nso<end>\n"]
    );
    // What follows the content in the turn belongs to it, also where there is no content.
    let calling = |key: &str, value: Value| json!({"role": "assistant", key: value, "calls": "go"});
    for (key, value, found) in [
        ("content", json!("so"), "so\n[go]<end>\n"),
        ("content", json!(""), "[go]<end>\n"),
        ("content", json!(null), "[go]<end>\n"),
        ("content", json!([{"text": "so"}]), "[go]<end>\n"),
        ("thinking", json!("hm"), "[go]<end>\n"),
    ] {
        let call = calling(key, value);
        let answers = answers(json!([asked("a"), call, asked("b"), said("")]));
        assert_eq!(answers.unwrap(), [found, "<think></think>\n<end>\n"]);
    }
    // A call, what it gives and an answer to it; both are written in another way once the next question follows.
    let tool = json!({"role": "tool", "content": "7"});
    let call = calling("thinking", json!("hm"));
    let mut chat = vec![asked("a"), call, tool, said("so")];
    let found = answers(json!(chat)).unwrap();
    let last = "<think></think>\nso<end>\n";
    assert_eq!(found, ["<think>hm</think>\n[go]<end>\n", last]);
    chat.extend([asked("b"), said("so")]);
    let found = answers(json!(chat)).unwrap();
    assert_eq!(found, ["[go]<end>\n", "so<end>\n", last]);
    let found = answers(json!([asked("a"), said("so"), said("so")]));
    assert_eq!(found.unwrap(), ["so<end>\n", last]);
}

fn user() -> Value {
    json!({"messages": [{"role": "user", "content": "Aa"}]})
}

#[test]
fn texts_are_those_of_python() {
    for (template, text) in [
        ("{{ strftime_now('%d %B %Y') }}", "26 July 2024"),
        (
            "{{ messages | tojson }}",
            r#"[{"content": "Aa", "role": "user"}]"#,
        ),
        (
            "{{ {'a': [], 'b': [1, {}]} | tojson(indent=2) }}",
            "{\n  \"a\": [],\n  \"b\": [\n    1,\n    {}\n  ]\n}",
        ),
        (
            "{% for i in range(9) %}{% if i > 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
        ),
        ("{{ messages[0].content.upper().replace('A', 'é') }}", "éé"),
        ("{{ tools is none }}{{ bos_token }}", "True"),
        (
            "{{ 1e16 }} {{ 0.00001 }} {{ 1.0 }} {{ -0.0 }} {{ 1e22 | string }}",
            "1e+16 1e-05 1.0 -0.0 1e+22",
        ),
        (
            "{{ [1e-5, 1, 'a', none, (0.5,), {'b': 1e16}] }}",
            "[1e-05, 1, 'a', None, (0.5,), {'b': 1e+16}]",
        ),
        (
            "{{ [1e-5, 1e16, 0.0001, 123456789.123] | tojson }}",
            "[1e-05, 1e+16, 0.0001, 123456789.123]",
        ),
        (
            "{{ 'ab' is sequence }} {{ {} is sequence }} {{ [] is sequence }} {{ nope is sequence }} {{ 1 is sequence }} \
             {{ none is sequence }}",
            "True True True True False False",
        ),
        (
            "{{ none is iterable }} {{ 'ab' is iterable }} {{ {} is iterable }} {{ nope is iterable }} {{ 1 is iterable }}",
            "False True True True False",
        ),
        (
            "{{ \"they're BILL's 2nd ßa\".title() }} {{ \"they're\" | title }}",
            "They'Re Bill'S 2Nd Ssa They're",
        ),
    ] {
        assert_eq!(rendered(template, user()).unwrap(), text, "{template}");
    }
    // Objects keep the order of the line.
    let chat = r#"{"messages": [{"role": "user", "z": 1, "a": 2}]}"#;
    let template = ChatTemplate::parse("{{ messages[0] | tojson }}", Vec::new()).unwrap();
    assert_eq!(
        template.render(chat).unwrap().text,
        r#"{"role": "user", "z": 1, "a": 2}"#
    );
}

/// By transformers 5.24.
#[test]
fn messages_are_changed_as_transformers_does() {
    let of = |message: &str| {
        let template = "{{ messages[0] | tojson }}{{ messages[0].x is defined }}";
        let template = ChatTemplate::parse(template, Vec::new()).unwrap();
        let chat = format!(r#"{{"messages": [{message}]}}"#);
        template.render(&chat).unwrap().text
    };
    for (message, text) in [
        // As `datasets` writes them; what lies deeper stays.
        (
            r#"{"role": "user", "x": null, "content": "a", "y": [null, {"z": null}]}"#,
            r#"{"role": "user", "content": "a", "y": [null, {"z": null}]}False"#,
        ),
        (
            r#"{"role": "user", "content": null}"#,
            r#"{"role": "user"}False"#,
        ),
        (
            r#"{"role": "user", "reasoning": "w"}"#,
            r#"{"thinking": "w", "role": "user", "reasoning": "w", "reasoning_content": "w"}False"#,
        ),
        (
            r#"{"role": "user", "thinking": "t", "reasoning": "w"}"#,
            r#"{"thinking": "t", "role": "user", "reasoning": "w", "reasoning_content": "t"}False"#,
        ),
        (
            r#"{"role": "user", "reasoning_content": "c", "thinking": "t"}"#,
            r#"{"thinking": "t", "role": "user", "reasoning_content": "c"}False"#,
        ),
        (
            r#"{"role": "user", "reasoning_content": null, "thinking": ""}"#,
            r#"{"thinking": "", "role": "user", "reasoning_content": ""}False"#,
        ),
    ] {
        assert_eq!(of(message), text, "{message}");
    }
}

#[test]
fn integers_are_exact_or_refused() {
    let of = |number: &str| {
        let template = "{{ messages[0].n }} {{ messages[0] | tojson }}";
        let template = ChatTemplate::parse(template, Vec::new()).unwrap();
        let text = r#""\\\"99999999999999999999""#;
        let chat = format!(r#"{{"messages": [{{"role": {text}, "n": {number}}}]}}"#);
        template.render(&chat).map(|chat| chat.text)
    };
    for (number, text) in [
        ("18446744073709551615", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("1e5", "100000.0"),
        ("100000000000000000000.0", "1e+20"),
    ] {
        let wanted =
            format!("{text} {{\"role\": \"\\\\\\\"99999999999999999999\", \"n\": {text}}}");
        assert_eq!(of(number).unwrap(), wanted, "{number}");
    }
    for number in [
        "18446744073709551616",
        "-9223372036854775809",
        "[1, {\"a\": 100000000000000000000}]",
    ] {
        match of(number) {
            Err(ChatError::Integer(digits)) => assert!(number.contains(&digits), "{digits}"),
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[test]
fn a_hostile_template_is_one_line() {
    let doubled = "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let long = "{% set x = 'a' * 9000000 %}";
    for template in [
        doubled.to_owned(),
        "{% for i in range(90000) %}{% for i in range(90000) %}{% endfor %}{% endfor %}".to_owned(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        format!("{long}{{{{ x.replace('a', x) }}}}"),
        format!("{long}{{{{ x | replace('a', x) }}}}"),
        format!("{long}{{{{ x.join([x, x, x]) }}}}"),
        "{{ '{:>99999999999}'.format('a') }}".to_owned(),
        "{{ ([messages] * 90000000) | tojson }}".to_owned(),
        "{{ raise_exception('no\nturns') }}".to_owned(),
        "{{ messages[0].nothing.at_all }}".to_owned(),
        "{{ strftime_now('%Q') }}".to_owned(),
        "{{ messages[0].nothing | tojson }}".to_owned(),
    ] {
        match rendered(&template, user()) {
            Err(ChatError::Refused(words)) => {
                assert!(!words.contains('\n') && words.len() < 300, "{words}");
            }
            other => panic!("{template}: {other:?}"),
        }
    }
    // Whether it is refused or not, the process goes on.
    let _ = rendered(nested, user());
    for template in [
        "{% for %}",
        "{% include 'a' %}",
        "{{ a",
        &"{% if a %}".repeat(90_000),
        &"(".repeat(90_000),
    ] {
        if let Err(words) = ChatTemplate::parse(template, Vec::new()) {
            assert!(!words.contains('\n'), "{words}");
        }
    }
    assert!(ChatTemplate::parse("{% for %}", Vec::new()).is_err());
    assert!(ChatTemplate::parse(&" ".repeat(2 << 20), Vec::new()).is_err());
}

/// To compare lists takes no fuel. This ends a moment later: nothing is left to run for ever.
#[test]
fn a_template_that_takes_long_is_not_waited_for() {
    let template = "{% set a = [messages] * 1000 %}{% set b = [messages] * 1000 %}\
        {{ [a] * 1000 == [b] * 1000 }}";
    let template = ChatTemplate::parse(template, Vec::new()).unwrap();
    let line = user().to_string();
    match template.render_within(&line, Duration::from_millis(50)) {
        Err(ChatError::Refused(words)) => assert_eq!(words, "takes too long"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_conversation_is_refused() {
    let template = ChatTemplate::parse(
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        Vec::new(),
    )
    .unwrap();
    for (line, words) in [
        ("{", "is no conversation (EOF"),
        (r#"{"text": "a"}"#, "missing field `messages`"),
        (
            r#"{"messages": [{"content": "a"}]}"#,
            "no text `role` in message 1",
        ),
        (
            "{\"messages\": [{\"role\": \"\u{FDD0}\"}]}",
            "noncharacters",
        ),
        (
            r#"{"messages": [{"role": "user", "content": "\uFDd1"}]}"#,
            "noncharacters",
        ),
    ] {
        match template.render(line) {
            Err(ChatError::Malformed(fault)) => assert!(fault.contains(words), "{fault}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    // The last message changes what is before it.
    let changing = "{% for m in messages %}{{ m.content ~ messages | length }}{% endfor %}";
    let chat = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    assert!(matches!(rendered(changing, chat), Err(ChatError::NoPrefix)));
    // No messages are before the first.
    let first = "{{ messages[0].role }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let chat = json!({"messages": [{"role": "assistant", "content": "b"}]});
    assert!(matches!(rendered(first, chat), Err(ChatError::NoPrefix)));
}
