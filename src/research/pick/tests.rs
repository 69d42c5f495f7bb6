use super::*;
use crate::base::id::ContentHash;
use crate::source::Label;

fn picked(document: &str, question: &str) -> Vec<Picked> {
    picked_with(document, question, &[])
}

fn picked_with(document: &str, question: &str, names: &[ProperName]) -> Vec<Picked> {
    picks(&[("Beds", document)], question, names).units
}

fn reading(title: &str, document: &str) -> DocumentHits {
    let place = Place::Kb {
        collection: "kb".into(),
        path: "a.md".into(),
        title: title.into(),
        heading_path: Vec::new(),
        line_start: 1,
        line_end: 1,
        content_hash: ContentHash::of(document.as_bytes()),
        date: None,
    };
    let text = document.to_owned();
    let passage = Passage { id: "c".into(), place, label: Label::Internal, snippet: String::new(), text, score: 1.0 };
    DocumentHits { hits: vec![(0..document.len(), 1.0)], document: passage }
}

/// Picks from documents with these titles.
fn picks(documents: &[(&str, &str)], question: &str, names: &[ProperName]) -> Picks {
    let readings: Vec<_> = documents.iter().map(|(title, document)| reading(title, document)).collect();
    let question = question.parse().unwrap();
    pick(&NodeId::numbered(1), &question, names, &readings, &WordSplitter::default(), None).unwrap()
}

fn quotes(found: &Picked) -> Vec<&str> {
    found.quotes.iter().map(|quote| quote.quote.as_str()).collect()
}

/// Returns whether the units picked from a document lack what a question requests.
fn lacks(document: &str, question: &str) -> bool {
    lacks_value(&question.parse().unwrap(), &[], &picked(document, question))
}

#[test]
fn long_table_is_cut_to_its_header_and_the_rows_that_bear_on_the_question() {
    let rows: Vec<_> = (1..40).map(|bed| format!("| bed {bed} | holds plant{bed} |\n")).collect();
    let table = format!("# Beds\n\n| bed | plants |\n|---|---|\n{}", rows.concat());
    let found = picked(&table, "Where is plant17?");
    assert_eq!(quotes(&found[0]), ["| bed | plants |\n|---|---|", "| bed 17 | holds plant17 |"]);
}

#[test]
fn table_that_is_cut_at_its_end_has_its_header_apart_so_that_readers_are_told() {
    let table = |plants: usize, stones: usize| {
        let plants = (0..plants).map(|bed| format!("| bed {bed} | plants |\n"));
        let stones = (0..stones).map(|bed| format!("| path {bed} | stones |\n"));
        format!("# Beds\n\n| bed | holds |\n|---|---|\n{}", plants.chain(stones).collect::<String>())
    };
    let shown = |table: &str| quotes(&picked(table, "Where are the plants?")[0]).len();
    assert_eq!((shown(&table(4, 30)), shown(&table(4, 0))), (2, 1));
}

#[test]
fn row_of_the_code_word_is_shown_without_the_others_of_its_family() {
    let family = |name: &str| -> String {
        let row = |size: &str| format!("| db\\.{name}\\.{size} | 1 | memory of {name} {size} |\n");
        ["micro", "small", "medium", "large", "xlarge"].map(row).concat()
    };
    let rows = ["m1", "t2", "t3", "r5"].map(family).concat();
    let table = format!("# Classes\n\n| class | vCPU | memory |\n|---|---|---|\n{rows}");
    let found = picked(&table, "How much memory has a db.t2.small instance of this small class?");
    let row = "| db\\.t2\\.small | 1 | memory of t2 small |";
    assert_eq!(quotes(&found[0]), ["| class | vCPU | memory |\n|---|---|---|", row]);
    assert!(found[0].text.contains("t2.small"), "{}", found[0].text);
}

#[test]
fn row_of_the_release_that_is_asked_about_decides_though_another_has_the_value() {
    let table =
        "# Support\n\n| release | end of support |\n|---|---|\n| Pump 7.7 | |\n| Pump 7.6 | 14 November 2028 |\n";
    let found = picked(table, "On what date does support of Pump 7.7 end?");
    assert!(found[0].text.contains("7.7"), "{}", found[0].text);
}

#[test]
fn overview_has_the_opening_of_each_section() {
    let about = |words: &str| format!("They say that {words} of the mill is old. ").repeat(30);
    let document = format!(
        "# Mill\n\n## Stones\n\n{}\n\nAnother word on the mill stones.\n\n## Wheel\n\n{}\n",
        about("granite from far away"),
        about("oak with iron nails")
    );
    let found = picked(&document, "Give me an overview of the mill.");
    let quotes: Vec<_> = found.iter().map(|found| quotes(found)[0]).collect();
    assert!(quotes[0].starts_with("They say that granite"), "{quotes:?}");
    assert!(
        quotes[2].starts_with("They say that oak") && quotes.len() == 3,
        "a note on it has more of its opening: {quotes:?}"
    );
    assert!(quotes.iter().all(|quote| quote.len() < 600), "{quotes:?}");
}

#[test]
fn overview_begins_with_what_opens_the_section_on_its_subject() {
    let document = "# Garden\n\n## Tables\n\n| what | mill program |\n|---|---|\n| mill program | mill program |\n\n## \
                    The mill program\n\nEvery grinder who wants to learn may take part in it for one year.\n\n### How to \
                    enter\n\nWrite a letter to the miller.\n";
    let found = picked(document, "Tell me about the mill program");
    assert!(quotes(&found[0])[0].starts_with("Every grinder"), "{found:#?}");
    assert!(quotes(&found[1])[0].starts_with("Write a letter") && found[0].says_most, "{found:#?}");
    assert!(is_overview(&"Tell me about the mill program".parse().unwrap()));
}

#[test]
fn abbreviation_is_answered_by_the_text_that_spells_it_out() {
    let document = "# Tickets\n\n## Footnotes\n\nAn RFH is valuable, and what an RFH is, is known to all who file \
                    one.\n\n## Ways\n\nFor what is hard, write a request for help (RFH).\n";
    let found = picked(document, "What is an RFH?");
    assert!(found[0].text.ends_with("request for help (RFH)."), "{found:#?}");
    let found = picked(document, "What is an RFH valuable for?");
    assert!(found[0].text.starts_with("An RFH is valuable"), "{found:#?}");
}

#[test]
fn number_of_days_is_a_length_and_a_size_has_a_number() {
    let days = "How many days does the smith take for a pump?";
    assert!(lacks("# Smith\n\nThe smith takes 2 pumps at once.\n", days));
    assert!(!lacks("# Smith\n\nThe smith takes 2 weeks for a pump.\n", days));
    let size = "How big can a pump get?";
    assert!(lacks("# Smith\n\nA pump can get big.\n", size) && !lacks("# Smith\n\nA pump can get 3 m big.\n", size));
}

#[test]
fn release_that_no_unit_names_is_no_answer() {
    let note = "# Pump\n\nSupport of Pump 7.6 ends in the year 2028.\n";
    let lacks = |question: &str| lacks(note, question);
    assert!(lacks("When does support of Pump 8 end?") && lacks("When does support of Pump 202 end?"));
    assert!(!lacks("When does support of Pump 7 end?") && !lacks("When does support of Pump 7.6 end?"));
}

#[test]
fn exact_number_in_the_section_of_the_best_unit_answers() {
    let note = "# Pump\n\n## Hands\n\nBy default, at most 10 hands may be there.\n\nThis is no hard limit. The pump of the mill lets you put \
        more to one wheel before the miller warns of a leak.\n";
    let found = picked(note, "How many hands can I put to one wheel of the mill before the miller warns of a leak?");
    assert!(found[0].text.contains("10 hands"), "{found:#?}");
}

#[test]
fn number_of_what_no_unit_mentions_is_no_answer() {
    let document = "# Work\n\nA task takes three weeks.\n";
    let lacks = |question: &str| lacks(document, question);
    assert!(lacks("How many story points is a task?"));
    assert!(!lacks("How many weeks is a task?") && !lacks("How many days is a task?"));
}

#[test]
fn paragraph_longer_than_a_screen_is_cut_to_the_sentences_around_the_answer() {
    let filler =
        |word: &str| format!("The {word} of the village is old and much loved by all who live in it. ").repeat(20);
    let document = format!("# Mill\n\n{}The mill grinds oats on Friday. {}\n", filler("church"), filler("school"));
    let found = picked(&document, "When does the mill grind oats?");
    let quote = quotes(&found[0])[0];
    assert!(quote.contains("oats on Friday. The school") && quote.contains("church"), "{quote}");
    assert!(quote.len() < 13 * 90, "{quote}");
}

#[test]
fn units_that_mention_no_document_that_the_question_names_are_left_out_if_others_do() {
    let document = "# Pumps\n\nThe price of a garden pump is 40 euros in spring.\n\n## Zeus\n\nThis is 90 euros.\n";
    let question = "What is the price of the Zeus garden pump in spring?";
    let name = |word: &str, path: &str| {
        let documents = [DocumentId::new("kb", path)].into();
        [ProperName { word: word.to_owned(), documents }]
    };
    let texts = |names: &[ProperName]| -> Vec<_> {
        picked_with(document, question, names).into_iter().map(|picked| picked.text).collect()
    };
    assert!(texts(&[])[0].starts_with("The price"));
    assert_eq!(texts(&name("Zeus", "zeus.md")), ["This is 90 euros."]);
    assert!(texts(&name("Hera", "hera.md"))[0].starts_with("The price"));
    let lacks =
        |names: &[ProperName]| lacks_value(&question.parse().unwrap(), names, &picked_with(document, question, &[]));
    assert!(lacks(&name("Hera", "hera.md")) && !lacks(&name("Pumps", "p.md")), "no unit mentions Hera");
    assert!(!lacks(&name("Hera", "a.md")), "an alias stands in no unit");
}

#[test]
fn section_whose_heading_is_what_is_asked_comes_before_one_that_names_more() {
    let document = "# Pumps\n\n## Pump state of other makers\n\nThe pump has a state which other makers name \
                    differently, since each of them has names of its own.\n\n## Pump state\n\nThe pump tells its \
                    state by a lamp which is lit or not.\n";
    let found = picked(document, "What is the pump state?");
    assert!(found[0].text.starts_with("The pump tells"), "{}", found[0].text);
}

#[test]
fn sentence_that_says_it_of_the_subject_is_preferred_to_one_that_names_the_subject_again() {
    let document = "# Mill wheel\n\nThe mill wheel was built with the mill in the year of the flood. Oak is what it is \
                    made of. The wheel of the mill is painted green in the spring of each year.\n";
    let found = picked(document, "What is the mill wheel made of?");
    assert!(found[0].text.contains("Oak is what it is made of."), "{}", found[0].text);
}

#[test]
fn year_is_no_measure() {
    let document =
        "# Pump\n\nThe pump runs until the tank is full. It was built in 1999 in Leeds and was painted by Ann.\n";
    assert!(picked(document, "How long does the pump run?")[0].text.starts_with("The pump runs until"));
}

#[test]
fn year_does_not_say_how_many() {
    let document = "# Pump\n\nThe pump was sold in February 1979.\n";
    assert!(lacks(document, "How many pumps were sold?"));
    assert!(!lacks("# Pump\n\nThey sold 1979 pumps.\n", "How many pumps were sold?"));
}

#[test]
fn entry_of_a_glossary_is_shown_without_its_neighbours() {
    let document = "# Options\n\n**-a**  \nRings all bells of the tower.\n\n**-b**  \nTurns the wheel of the mill to the left.\n\n\
                    **-c**  \nStops the pump.\n";
    let found = picked(document, "What turns the wheel of the mill to the left?");
    assert_eq!(quotes(&found[0]), ["**-b**  \nTurns the wheel of the mill to the left."]);
}

#[test]
fn steps_below_the_text_on_a_task_come_before_a_list_above_it() {
    let document = "# Mill\n\nThere are two wheels:\n\n1. The left wheel.\n2. The right wheel.\n\nTo stop the mill at night you \
                    have to use its brake, and not its wheel.\n\nUse these steps:\n\n1. Pull the brake.\n2. Wait.\n";
    let found = picked(document, "How do I stop the mill at night?");
    assert!(found.iter().any(|own| quotes(own).concat().contains("Pull the brake")), "{found:?}");
}

#[test]
fn two_sentences_that_say_as_much_answer_together() {
    let document =
        "# Mill\n\nIt was built by Ann. The wheel turns to the left. The wheel turns at dawn. All is well.\n";
    assert_eq!(
        picked(document, "How does the wheel turn?")[0].text,
        "The wheel turns to the left. The wheel turns at dawn."
    );
}

#[test]
fn long_list_is_cut_to_the_item_with_the_value_that_is_asked_for() {
    let item = |name: &str, says: &str| {
        format!(
            "- **{name}** — The {name} of the mill is old and much loved by all who live here and all who come. {says}\n"
        )
    };
    let items: String =
        ["gate", "roof", "floor", "door", "wheel", "sack"].iter().map(|name| item(name, "It is so.")).collect();
    let document = format!("# Mill\n\nThese are the parts:\n\n{items}{}", item("stone", "It weighs 90 kg."));
    let shown = quotes(&picked(&document, "What is the maximum weight of the stone?")[0]).join("\n");
    assert!(shown.contains("These are the parts") && shown.contains("90 kg") && !shown.contains("roof"), "{shown}");
    let shown = quotes(&picked(&document, "What are the parts of the mill?")[0]).join("\n");
    assert!(shown.contains("roof"), "a list that is asked for is shown whole: {shown}");
}

#[test]
fn unit_in_other_words_than_the_question_answers_and_has_what_it_announces() {
    let document = "# Mill\n\n## Gate\n\nThe gate of the mill is red and opens to the left.\n\n## Wheel\n\nYou disable the \
                    wheel at the gate. To do so, run the following command as the miller.\n\n```sh\nwheel stop\n```\n";
    let found = picked(document, "How is the wheel turned off?");
    assert!(quotes(&found[0])[0].ends_with("wheel stop\n```"), "{found:#?}");
    let document =
        "# Mill\n\nThe wheel of the mill is big and is painted green.\n\nYou delete the sack by its number.\n";
    assert_eq!(picked(document, "Can a sack be erased?")[0].text, "You delete the sack by its number.");
}

#[test]
fn remedy_is_read_on_below_the_cause() {
    let document = "# Mill\n\n## Description\n\nYou get `NoGrainLeft` when you start the mill.\n\n## Cause\n\nThe sack is \
                    empty.\n\n## Solution\n\nFill the sack.\n\n## Notes\n\nIt is old.\n";
    let found = picked(document, "I keep getting NoGrainLeft when I start the mill. What can I try?");
    assert!(quotes(&found[0])[0].ends_with("Fill the sack."), "{found:#?}");
}

#[test]
fn limit_in_the_next_sentence_and_list_after_a_lead_in_are_shown() {
    let document = "# Uploads\n\nThe size of an upload depends on your plan. It is 5 MB in the free plan and 200 MB in \
                    others.\n\nThese formats are accepted:\n\n- png\n- jpg\n";
    let found = picked(document, "How large may an upload be?");
    assert!(quotes(&found[0])[0].contains("200 MB in others."));
    let found = picked(document, "Which formats are accepted?");
    assert_eq!(quotes(&found[0]), ["These formats are accepted:\n\n- png\n- jpg"]);
}

#[test]
fn sentence_that_leads_to_what_is_not_shown_is_cut_off() {
    let document = "# Valve\n\nThe valve of the pump opens to the left. Its handle is red, and turning it the other way \
                    breaks it. You will then see an error like this:\n\n```console\n{{#include ../out.txt}}\n```\n";
    let found = picked(document, "How does the valve of the pump open?");
    assert!(quotes(&found[0])[0].ends_with("breaks it."), "{found:#?}");
}

#[test]
fn paragraph_before_code_from_another_file_is_shown_with_the_one_after() {
    let document = "# Tests\n\nPass the name of a test to run only that one:\n\n```console\n{{#include ../out.txt}}\n```\n\n\
                    Only the test named `one` ran, as the last line says.\n";
    let found = picked(document, "How do I run only one test?");
    assert!(quotes(&found[0])[0].starts_with("Pass the name") && quotes(&found[0])[0].ends_with("says."));
}

#[test]
fn paragraph_that_refers_to_the_one_before_is_shown_with_it() {
    let document = "# Valves\n\nA valve of brass lasts.\n\nSo, what closes a brass valve? The night rule does.\n";
    let found = picked(document, "What closes a brass valve at night?");
    assert!(found[0].quotes[0].quote.starts_with("A valve of brass lasts."));
}

#[test]
fn example_is_shown_with_the_paragraph_that_it_is_an_example_of() {
    let document = "# Valves\n\nThe valve stays open for one night with the flag of the pump.\n\nFor \
                    example:\n\n```sh\npump --open valve --night\n```\n";
    let found = picked(document, "How do I keep the pump valve open for a night?");
    let quote = quotes(&found[0])[0];
    assert!(quote.starts_with("The valve stays open") && quote.ends_with("--night\n```"), "{quote}");
}

#[test]
fn question_for_a_value_is_not_answered_by_units_without_one() {
    let document = "# Valves\n\nBrass valves arrived in a later version of the garden.\n";
    assert!(lacks(document, "Which version introduced brass valves?"));
    assert!(!lacks(document, "Why did the garden introduce brass valves?"));
    assert!(lacks("The garden has twelve brass valves in this version.", "Which version introduced brass valves?"));
    for value in ["In version 1.4 the garden got brass valves.", "Brass valves are in the garden since Pump 7."] {
        assert!(!lacks(value, "Which version introduced brass valves?"), "{value}");
    }
    let document = "# Tyres\n\nThe winter tyres are in the cellar since 2 October.\n";
    assert!(lacks(document, "What did the winter tyres cost?"));
    for amount in ["The winter tyres were 480 €.", "Cost of the winter tyres: 480.", "The winter tyres were free."] {
        assert!(!lacks(amount, "What did the winter tyres cost?"), "{amount}");
    }
    let rows = "| Pump | Support ends |\n|---|---|\n| Pump 7.6 | 2 May 2028 |\n| Pump 7.7 | |\n";
    assert!(lacks(rows, "On which day does support for Pump 7.7 end?"), "the day is that of another row");
    assert!(!lacks(rows, "On which day does support for Pump 7.6 end?"));
    let prices = "| Plan | Price (EUR) |\n|---|---|\n| Basic | 9 |\n| Premium | 19 |\n| Gold | |\n";
    assert!(!lacks(prices, "What does the Premium plan cost?") && lacks(prices, "What does the Gold plan cost?"));
    let map = "For information on the regions of pumps, see the map.";
    assert!(lacks(map, "Which regions have pumps?") && !lacks(map, "Where are the regions of pumps?"));
    let document = "# Meet\n\nThe meet of the valve makers had 40 guests.\n\nThe opener at the meet was 295 lbs.\n";
    assert!(lacks(document, "On which day is the meet of the valve makers?"));
    for day in ["2 May", "a Tuesday", "2025-05-02"] {
        assert!(!lacks(&format!("The meet is on {day}.\n"), "On which day is the meet?"), "{day}");
    }
}

#[test]
fn sentence_with_the_value_that_is_asked_for_decides_and_of_a_list_that_is_asked_for_its_lead_in() {
    let document =
        "# Valves\n\nValves of a garden are counted by the gardener every spring. There are forty of them.\n";
    assert_eq!(picked(document, "How many valves are in the garden?")[0].text, "There are forty of them.");
    let document = "# Valves\n\nThe garden has these valves:\n\n- a brass valve in the garden\n- a steel valve\n";
    assert_eq!(picked(document, "Which valves are in the garden?")[0].text, "The garden has these valves:");
}

#[test]
fn unit_whose_sentence_has_all_that_is_asked_is_the_answer_without_poorer_ones_unless_several_things_are_asked_for() {
    let shown = |heading: &str, question: &str| {
        let document = format!(
            "# Brass\n\nThe garden closes its brass valves at night because of frost that comes in March.\n\n{heading}At dusk \
             the garden closes its brass valves, says the watchman, who walks round with a lamp and a dog.\n"
        );
        let found = picked(&document, question);
        found.iter().flat_map(quotes).any(|quote| quote.contains("says the watchman"))
    };
    assert!(!shown("# Dusk\n\n", "Why does the garden close its brass valves at night?"));
    assert!(shown("", "Which brass valves close at night in the garden?"));
}

#[test]
fn units_that_follow_each_other_are_one_text_and_count_once() {
    let document = "# Garden\n\n## Gate\n\nThe gate of the garden has a lock of brass.\n\nBoth garden gates are \
                    closed at night by the watchman.\n\n## Oak\n\nOak is good for every gate beside the garden \
                    pond.\n\n## Mill\n\nThe smith made gates for the mill and its garden.\n";
    let found = picked(document, "Which gates are in the garden?");
    let joined = "lock of brass.\n\nBoth garden gates are closed";
    assert!(found.iter().any(|found| quotes(found)[0].contains(joined)), "{found:#?}");
    assert_eq!(found.len(), 3);
}

#[test]
fn step_is_shown_with_those_around_it_and_not_with_those_for_another_case() {
    let filler = "The pump of the garden was built long ago by a smith of the village, who is remembered. ".repeat(12);
    let document = format!(
        "# Pump\n\n{filler}\n\nOpen the valve that feeds the pump from the tank of the garden:\n\n```sh\nopen\n```\n\n\
         By adding `--undo`, close it:\n\n```sh\nopen --undo\n```\n\nThe smith is dead.\n"
    );
    let found = picked(&document, "How do I open the valve that feeds the pump?");
    let quote = quotes(&found[0])[0];
    assert!(quote.starts_with("Open the valve") && quote.ends_with("open --undo\n```"), "{quote}");
    let document =
        "# Install the pump\n\nOn Debian:\n\n```sh\napt install pump\n```\n\nOn macOS:\n\n```sh\nbrew\n```\n";
    let found = picked(document, "How do I install the pump on Debian?");
    assert_eq!(quotes(&found[0]), ["On Debian:\n\n```sh\napt install pump\n```"]);
    let document = "# Redis\n\nIt is not open to the world.\n\nMake a tunnel:\n\n```sh\nssh\n```\n\nIn another terminal, reach \
                    the store:\n\n```sh\nredis-cli\n```\n";
    let found = picked(document, "How can I reach the store from my machine?");
    assert!(quotes(&found[0])[0].starts_with("It is not open") && found.len() == 1, "{found:#?}");
}

#[test]
fn short_section_is_shown_whole_unless_one_sentence_says_yes_or_no() {
    let document = "# Garden\n\n## Gate\n\nThe gate of the garden is shared with the mill by a list of names.\n\nWho \
                    is not on it asks the watchman.\n\n## Oak\n\nOak lasts.\n";
    let quote = |question: &str| quotes(&picked(document, question)[0])[0].to_owned();
    let read_on = quote("How is the garden gate shared with strangers?");
    assert!(read_on.ends_with("asks the watchman."), "{read_on}");
    let whole = quote("Whom do strangers outside the list ask?");
    assert!(whole.starts_with("The gate of") && whole.ends_with("asks the watchman."), "{whole}");
    let alone = quote("Is the gate shared with the mill?");
    assert!(alone.ends_with("list of names."), "{alone}");
}

#[test]
fn question_about_a_failure_is_answered_by_the_message_and_what_follows_it() {
    let document = "# Pump\n\n## Messages\n\n### Dry\n\nThe pump stops with this error:\n\n```text\nerror: the tank is \
                    dry\n```\n\n### What to do\n\nFill the tank.\n\n## Colours\n\nIt is red.\n";
    for question in ["error: the tank is dry", "The pump fails with \"the tank is dry\". How do I fix it?"] {
        let found = picked(document, question);
        assert!(quotes(&found[0])[0].ends_with("### What to do\n\nFill the tank."), "{found:#?}");
    }
    let found = picked(document, "Which error says that the tank is dry?");
    assert!(quotes(&found[0])[0].ends_with("dry\n```"), "who asks for the message gets it: {found:#?}");
}

#[test]
fn long_nested_list_is_cut_to_the_items_that_bear_on_the_question_below_those_they_are_nested_in() {
    let other = "Water the beds in the evening and close the gate behind you, so that no goat comes in. ".repeat(15);
    let document = format!(
        "# Rules\n\nThe rules:\n\n- Beds:\n    - {other}\n- Leave:\n    - {other}\n    - A long holiday needs permission.\n"
    );
    let found = picked(&document, "Do I need permission for a holiday?");
    assert_eq!(quotes(&found[0]), ["The rules:", "- Leave:", "    - A long holiday needs permission."]);
}

#[test]
fn row_of_a_symbol_is_found_by_it() {
    let row = |sign: &str| format!("| `{sign}` | `a {sign} b` |\n");
    let signs = ["!", "!=", "%", "%=", "&", "&&", "*", "*=", "+", "+=", "-", "-=", "..", "..=", "/", "/="];
    let table = format!("# Operators\n\n| operator | use |\n|---|---|\n{}", signs.map(row).concat());
    let found = picked(&table, "What does the ..= operator mean?");
    assert_eq!(quotes(&found[0]), ["| operator | use |\n|---|---|", "| `..=` | `a ..= b` |"]);
}

#[test]
fn first_sentence_answers_though_the_last_leads_on_to_something() {
    let document = "# Buddies\n\nA guild has a hall, a bell and a buddy for each that is new in it, says the book.\n\n\
                    The manager selects the buddy of a new member. These points are considered:\n";
    let found = picked(document, "Who selects the buddy of a member?");
    assert!(found[0].text.starts_with("The manager"), "{found:#?}");
}

#[test]
fn unit_that_points_elsewhere_comes_after_one_that_says() {
    let document = "# Expenses\n\nYou can find information on how to submit an expense here.\n\n\
                    Submit an expense with its receipt in the portal by the end of the month.\n";
    let found = picked(document, "How do I submit an expense?");
    assert!(found[0].quotes[0].quote.starts_with("Submit an expense"), "{found:#?}");
}

#[test]
fn passage_is_on_a_term_if_the_title_of_its_note_has_little_else_or_a_sentence_defines_it() {
    let is_on = |title: &str, text: &str| {
        let DocumentHits { document, .. } = reading(title, text);
        !on_term(&"What is a scan?".parse().unwrap(), &[&document]).is_empty()
    };
    assert!(is_on("Scans", "a") && is_on("Working with Scans in Mills", "a"));
    assert!(!is_on("Working with Mills", "a") && !is_on("Scan costs", "a") && !is_on("Query and Scan the Data", "a"));
    assert!(is_on("Mills", "It is fast. A scan is a way to read.") && !is_on("Mills", "A scan is running."));
    assert!(
        is_on("Mills", "**Scan**  \nA way to read.") && is_on("Mills", "| Term | Is |\n|---|---|\n| Scan | A way |")
    );
}

#[test]
fn what_opens_a_note_with_the_name_asked_about_defines_it() {
    let note = "# Beds\n\nA raised bed holds the soil above the ground with boards.\n\n## Care\n\nMany gardeners have a \
        raised bed, and a raised bed of oak lasts longer than a raised bed of pine.\n";
    let found = picked(&note.replace("# Beds", "# Raised Beds"), "What is a raised bed?");
    assert_eq!(found[0].text, "A raised bed holds the soil above the ground with boards.");
    assert!(found[0].says_most);
    assert!(!picked(note, "What is a bed of oak?")[0].says_most);
    let note = note.replace("# Beds", "# Creating a raised bed").replace("boards.", "boards.\n\n```\nmake bed\n```");
    assert_eq!(picked(&note, "What is a raised bed?")[0].text, found[0].text, "above code, in a note on a task");
}

#[test]
fn term_is_defined_by_a_sentence_of_any_note() {
    let note = "# Milling\n\n## Grinding oats\n\nEach mill has a wheel that turns all day and all night.\n\n## Making \
        flour\n\nPut the oats in. A hopper is the box above the stones, which is made of oak.\n\n## The hopper is \
        empty\n\nIf the hopper is empty, fill the hopper before the stones of the hopper run hot.\n";
    let found = picked(note, "What is a hopper?");
    assert_eq!(found[0].text, "A hopper is the box above the stones, which is made of oak.");
    assert!(found[0].says_most && found[0].is_clear);
    let note =
        "# Words\n\n- **Hopper**: the box above the stones.\n- **Wheel**: it turns.\n- **Sack**: it holds flour.\n";
    let found = picked(note, "What is a wheel?");
    assert_eq!(quotes(&found[0]), ["- **Wheel**: it turns."], "the item of a glossary");
    let note =
        "# Keys\n\nFew gates need a key of their own.\n\nFor example, take two gates. The key is a date of May.\n";
    assert!(!picked(note, "What is a key?")[0].says_most, "an example is no definition");
    let note = "# Mills\n\nSome wheels lie flat in the water. Such wheels are known as tub wheels.\n";
    assert_eq!(
        picked(note, "What is a tub wheel?")[0].text,
        "Some wheels lie flat in the water. Such wheels are known as tub wheels."
    );
}

#[test]
fn question_for_a_default_a_path_a_limit_or_a_count_is_not_answered_without_one() {
    for (question, lacking, answer) in [
        (
            "What is the default speed of the mill wheel?",
            "The mill wheel has a speed of 4.",
            "The mill wheel has a speed \
            of 4 unless you set one.",
        ),
        (
            "In which folder does the mill keep its books?",
            "The mill keeps its books for all.",
            "The mill keeps its \
            books in `~/mill/books`.",
        ),
        (
            "What is the maximum load of the mill cart?",
            "The mill cart has a load that you choose.",
            "The mill cart has \
            a load of 9 sacks.",
        ),
        ("How many grain sacks does the mill take?", "The mill takes 4 carts in a day.", "The mill takes 9 sacks."),
        ("How many days does the mill rest?", "The mill rests in bay S3.", "The mill rests 3 days."),
        ("How many days does the mill rest?", "The miller's rest lasts 3 turns.", "The mill rests one day."),
        ("How fast does the mill stop?", "The mill stops one time.", "The mill stops within one turn."),
        ("How many microseconds is one turn?", "One turn is 0x14 or 01H.", "One turn is 9 µs."),
        (
            "What load size in bytes does the mill take?",
            "The mill takes a load of size 4.",
            "The mill takes 4 KB loads.",
        ),
        ("What percentage of grain is lost?", "Of 9 grains, some are lost.", "9 % of grain is lost."),
        ("Which Linen version does the mill need?", "The mill needs Brass 8.", "The mill needs Linen 8."),
        (
            "What is the maximum delay of `/turn`?",
            "| A | B |\n|---|---|\n| `/turn` | a delay |\n| `/stop` | up to 9 |",
            "| A | B |\n|---|---|\n| `/turn` | a delay up to 9 |\n| `/stop` | a bell |",
        ),
        (
            "What date was the mill opened?",
            "The mill opened with 9 shows, among them the Monday show that came 5th.",
            "The mill opened on 4 March.",
        ),
        (
            "How long does the tour of the mill take?",
            "The tour of the mill takes two guides, [as told](/t/44).",
            "The tour of the mill takes two hours.",
        ),
        (
            "How often does the mill turn if I haven't touched its speed?",
            "The speed says how often per hour the mill turns.",
            "The mill turns 4 times an hour unless you set its speed.",
        ),
        ("How much is the yearly toll for a miller?", "A miller has 75 % of the bonus.", "The yearly toll is 4."),
    ] {
        assert!(lacks(lacking, question) && !lacks(answer, question), "{question}");
    }
}

#[test]
fn value_of_something_else_than_is_named_is_lacking() {
    let lacks = |note: &str, question: &str| lacks(&format!("# Deals\n\n{note}\n"), question);
    let question = "How much did the guild pay for Oak Mill?";
    assert!(lacks("The guild sold York Mill for $90 to Ann. Oak Mill was bought in 2013.", question));
    assert!(
        !lacks("Oak Mill was bought by Ann in 2013. It was sold for $90 to York Mill by the guild.", question),
        "a pronoun"
    );
    assert!(!lacks("The guild paid Ann $90 for Oak Mill.", question));
    assert!(!lacks("Oak Mill is by the river. The guild has paid $90 for it in March.", question), "no other name");
    let table = |name: &str| format!("| Place | Kept for |\n|---|---|\n| {name} | 30 days |\n| Leeds | 9 days |");
    let question = "For how long are letters kept in Oak Mill?";
    assert!(lacks(&table("York Mill"), question) && !lacks(&table("Oak Mill"), question));
    let html = "<table><tr><th>Place</th><th>Kept for</th></tr><tr><td>York Mill</td><td>30 days</td></tr></table>";
    assert!(lacks(html, question) && !lacks(&html.replace("York", "Oak"), question));
    assert!(!lacks(&format!("Letters of Oak Mill:\n\n{}", table("York")), question), "the subject of the table");
    assert!(!lacks(&table("Letters"), "For how many DAYS are letters kept?"), "no name");
    assert!(!lacks("The mill needs Linen Server 8.", "Which Linen version does the mill need?"));
    let question = "How many guests may enter on Linen Day 2022?";
    assert!(lacks("On Brass 2022, 9 guests may enter.", question));
    assert!(!lacks("In 2022, 9 guests may enter on Linen Day.", question));
}

#[test]
fn choice_that_was_made_is_below_the_heading_for_it() {
    let note = "# Pumps of the mill\n\n## Hand pumps and wind pumps for the mill\n\n- A hand pump is a cheap pump for the \
                mill.\n- A wind pump is a fast pump for the mill.\n\n## Decision\n\nWe started with the first.\n";
    assert_eq!(picked(note, "Which pump did we choose for the mill?")[0].text, "We started with the first.");
}

#[test]
fn goals_in_sections_of_their_own_are_a_list() {
    let section = |at: usize| format!("## Goal {at}: the wheel\n\n- Turn the wheel {at} times.\n\n");
    let note = format!("# Mill\n\nWe have goals.\n\n{}", (1..=3).map(section).collect::<String>());
    let found = picked(&note, "What are our goals for the wheel?");
    let shown = quotes(&found[0]).concat();
    assert!(shown.starts_with("## Goal 1") && shown.ends_with("Turn the wheel 3 times."), "{shown}");
}

#[test]
fn table_of_long_cells_is_cut_to_the_row_that_answers() {
    let cell = "It is a rule of the mill that all who work in it follow from the first day to the last. ".repeat(12);
    let rows: String = ["oak_gate", "iron_gate", "bell"].map(|name| format!("| {name} | {cell} |\n")).concat();
    let table = format!("# Rules\n\n| Rule | Text |\n|---|---|\n{rows}");
    let found = picked(&table, "What does the rule iron_gate say?");
    assert!(quotes(&found[0])[1].starts_with("| iron_gate") && quotes(&found[0]).len() == 2, "{found:#?}");
}

#[test]
fn long_code_is_cut_and_the_row_of_a_history_is_told_by_its_subject() {
    let words: String = (0..500).map(|number| format!("WORD{number}\n")).collect();
    let found =
        picked(&format!("# Words\n\nThe mill reserves these words:\n\n```\n{words}```\n"), "Which words are reserved?");
    let quote = quotes(&found[0])[0];
    assert!(quote.lines().count() == 60 && quote.starts_with("The mill reserves"), "{}", quote.len());
    let row = |change: &str, day: u8| format!("| {change} | It was made. | May {day}, 2020 |\n");
    let rows: String = (1..9).map(|day| row("Oak wheel", day)).collect();
    let table = format!(
        "# History\n\n| Change | Description | Date |\n|---|---|---|\n{rows}{}{}",
        row("Route tables", 20),
        "| Initial release | This release introduces the mill. | May 30, 2018 |\n"
    );
    let found = picked(&table, "When were route tables released?");
    assert!(found[0].text.contains("May 20, 2020"), "{found:#?}");
}

#[test]
fn unit_without_the_value_is_left_out_if_another_has_it() {
    let note = "# Beds\n\nThe seeds of a bed may rest in the ground for up to 9 weeks.\n\nHow long the seeds of a bed may rest \
        in the ground depends on the plants.\n";
    let found = picked(note, "How long may the seeds of a bed rest in the ground?");
    assert_eq!(found.iter().flat_map(quotes).count(), 1, "{found:?}");
    assert!(found[0].text.ends_with("9 weeks."), "{found:?}");
}

#[test]
fn label_on_a_line_of_its_own_is_not_the_sentence_that_answers() {
    let note = "# Beds\n\n**Raised bed care**  \nWater it in the morning, before the sun is high.\n";
    let found = picked(note, "What care does a raised bed need?");
    assert_eq!(found[0].text, "Water it in the morning, before the sun is high.");
}

#[test]
fn row_with_the_rarest_word_of_the_question_is_shown_alone() {
    let row = |day: usize| {
        format!("| Added region | This release adds support for region r{day}. See Regions. | May {day} |\n")
    };
    let rows: String = (1..=20).map(row).collect();
    let rare = "| Added region | This release adds support for Bahrain. See Regions. | July 29 |\n";
    let table = format!("# History\n\n| change | what | date |\n|---|---|---|\n{rows}{rare}{rows}");
    let found = picked(&table, "When was support for the region Bahrain added?");
    assert_eq!(quotes(&found[0])[1..], [rare.trim_end()]);
}

#[test]
fn step_that_undoes_the_task_gives_way_to_the_one_that_does_it() {
    let note = "# Pump\n\n## Starting\n\nTo start the pump of the bed, turn the key of the pump to the right.\n\n\
                ## Stopping\n\nTo stop it, turn the key to the left.\n";
    let first = |question: &str| picked(note, question)[0].text.clone();
    assert_eq!(first("How do I turn off the pump of the bed?"), "To stop it, turn the key to the left.");
    assert!(first("How do I turn on the pump of the bed?").starts_with("To start the pump"));
}

#[test]
fn what_is_not_so_is_found_where_it_is_denied() {
    let note = "# Valves\n\n## Supported valves\n\n- Brass valves are supported by the pump.\n- Steel valves are supported too.\n\n\
                ## Unsupported valves\n\n- Wooden valves do not fit the pump.\n- Glass valves do not fit it.\n";
    let found = picked(note, "Which valves are not supported by the pump?");
    assert!(quotes(&found[0])[0].contains("Wooden"), "{:?}", quotes(&found[0]));
    let note = "# Labels\n\nNot all labels are blue. Labels of an account can be deleted by anyone.\n";
    let found = picked(note, "Which labels of an account can't be deleted?");
    assert!(!found[0].text.starts_with("Not all"), "it denies something else: {found:#?}");
}

#[test]
fn sentence_that_denies_it_answers_whether_something_is_so() {
    let note = "# Valves\n\nThe valves of the pump are opened by hand, and the gardener opens a valve of the pump at night.\n\n## Night\n\nA \
                valve of the pump cannot be opened in the dark.\n";
    assert!(picked(note, "Can the gardener open a valve of the pump in the dark?")[0].text.contains("cannot"));
    assert!(picked(note, "How does the gardener open a valve of the pump?")[0].text.contains("by hand"));
}

#[test]
fn sentence_that_allows_it_answers_whether_something_is_allowed() {
    let document = "# Beds\n\n- Guards take lamps into the mill.\n- You may take lamps into the mill.";
    assert_eq!(picked(document, "Can I take lamps into the mill?")[0].text, "You may take lamps into the mill.");
    assert!(picked(document, "Do guards take lamps into the mill?")[0].text.starts_with("Guards"));
}

#[test]
fn rule_decides_and_not_its_example() {
    let found = picked(
        "# Beds\n\n- For example, lamps burn in the mill.\n- Lamps burn in the mill.",
        "Which lamps burn there?",
    );
    assert_eq!(found[0].text, "Lamps burn in the mill.");
}

#[test]
fn steps_below_a_heading_with_all_words_of_the_question_are_decisive() {
    let is_decisive = |heading: &str| {
        let document = format!("# Mill\n\n## {heading}\n\n1. Take the spade.\n2. Turn the soil over.\n");
        picked(&document, "How do I make a bed for roses?")[0].is_decisive
    };
    assert!(is_decisive("Making beds for roses") && !is_decisive("Making beds"));
}

#[test]
fn limit_is_found_among_the_limits() {
    let notes = [
        (
            "Beds",
            "You can plant as many as 3 seeds of the garden in a bed by hand, and 4 seeds in two beds of a garden.\n",
        ),
        ("Quotas", "| what | most |\n|---|---|\n| Beds in a garden | 40 |\n| Seeds in a bag | 900 |\n"),
    ];
    let first = |question: &str| picks(&notes, question, &[]).units[0].text.clone();
    assert!(first("How many beds can a garden have?").contains("40"));
    assert!(first("How are seeds of the garden planted in a bed by hand?").contains("by hand"));
}

#[test]
fn sentence_with_a_reason_answers_why() {
    let note = "# Pump\n\nThe pump is red at night in the garden. It is red due to rust.\n";
    assert!(picked(note, "Why is the pump red?")[0].text.contains("rust"));
}

#[test]
fn number_of_an_example_gives_way_to_the_rule() {
    let note = "# Beds\n\nA bed holds five plants of any kind at most, and none of them may be a tree.\n\nThe following example is a bed with seven plants:\n\n\
                - You set three plants in the bed.\n- You set four more plants in the bed.\n";
    let found = picked(note, "How many plants can one bed hold?");
    assert!(found[0].text.contains("five plants"), "{}", found[0].text);
    let note =
        "# Beds\n\nA bed holds five plants. For example, say a bed is as long as an arm. Then it has 23 plants.\n";
    assert!(picked(note, "How many plants are in one bed?")[0].text.starts_with("A bed holds five"));
}

#[test]
fn duration_that_is_not_in_the_answer_is_lacking() {
    let lacks = |note: &str| lacks(note, "How long are the keys of the shed kept?");
    assert!(lacks("# Keys\n\nThe keys of the shed are kept by the gardener in a box.\n"));
    assert!(lacks("# Keys\n\nThe keys of the shed are kept in a box.\n\n## Sheds\n\nThe shed has 500 keys.\n"));
    for length in [
        "for thirty days",
        "from 3 May to 9 June",
        "as long as the shed stands",
        "for 5 moons",
        "for a lifetime",
        "until the owner leaves",
        "for the rest of the day",
    ] {
        assert!(!lacks(&format!("# Keys\n\nThe keys of the shed are kept {length}.\n")), "{length}");
    }
}

#[test]
fn remark_on_how_to_undo_a_task_does_not_oppose_it() {
    let note = "# App\n\n## Photos\n\nDrag the photos into the window. Thumbnails of them are downloaded again afterwards.\n\n\
                ## Vault\n\nMembers must not upload photos of the vault. Only the keeper may see the photos of the vault.\n";
    let found = picked(note, "How do I upload photos to the window?");
    assert!(found.iter().any(|own| own.text.starts_with("Drag the photos")), "{found:#?}");
}

#[test]
fn rows_of_each_alternative_are_shown() {
    let row = |at: usize| format!("| node{at} | {} | Linux |\n", if at.is_multiple_of(3) { "Berlin" } else { "Oslo" });
    let rows: String = (1..=24).map(row).collect();
    let table = format!("# Hosts\n\n| server | city | system |\n|---|---|---|\n{rows}| node99 | Paris | Linux |\n");
    let found = picked(&table, "Which servers are in Berlin or Paris?");
    let shown = quotes(&found[0]).join("\n");
    assert!(shown.contains("node3 ") && shown.contains("node24 ") && shown.contains("node99 "), "{shown}");
}

#[test]
fn only_a_question_for_what_is_not_so_asks_for_it() {
    for (question, is_so) in [
        ("Which services can't be logged?", true),
        ("Which breeds are not allowed in the park?", true),
        ("Which parks am I not allowed to enter?", true),
        ("What file formats don't work?", true),
        ("What happens if I don't pay an invoice?", false),
        ("Which error means there is no paper?", false),
        ("What should I do when the printer does not print?", false),
        ("What can't be undone by the gardener?", true),
        ("What is a printer not good for?", true),
        ("What kinds of paper is a printer not made for?", true),
        ("Which of the lamps is red if it does not burn?", false),
        ("What is the lamp for when it does not burn?", false),
        ("What can I do if the printer does not print?", false),
    ] {
        assert_eq!(negation::asks_for_what_is_not(question), is_so, "{question}");
    }
}

#[test]
fn part_of_a_compound_is_found_in_it() {
    let german = WordSplitter::of(crate::base::language::Language::with_code("de").unwrap());
    let sought = Sought::of("Wann ist die Hauptversammlung?", &german);
    let found = sought.words_in("Die Jahreshauptversammlung findet im Mai statt.");
    assert!(sought.stems.iter().all(|stem| found.contains(stem)), "{:?} {found:?}", sought.stems);
    assert!(!sought.words_in("Die Frist ist kurz.").contains(&sought.stems[0]));
}

#[test]
fn items_below_the_one_that_denies_are_shown_with_it() {
    let filler =
        |bed: u32| format!("- Bed {bed} holds beans, which {}.\n", "climb along the strings to the roof ".repeat(12));
    let item = "- Raised beds stand on boards. You cannot grow these plants in raised beds:\n  - oak\n  - elm\n";
    let note = format!("# Beds\n\nRules of the beds:\n\n{}{item}{}", filler(1), (2..9).map(filler).collect::<String>());
    let found = picked(&note, "Which plants can't be grown in raised beds?");
    assert!(quotes(&found[0]).join("\n").ends_with("  - oak\n  - elm"), "{found:#?}");
    assert_eq!(found[0].text, "You cannot grow these plants in raised beds:");
    assert!(!quotes(&found[0]).concat().contains("Bed 3"), "the list is longer than a screen");
}

#[test]
fn row_with_the_words_of_the_question_and_the_value_is_decisive_and_a_sentence_on_the_subject_is_not() {
    let note = "# Limits\n\n| thing | limit |\n|---|---|\n| beds | 50 per garden |\n| gates | 2 per garden |\n";
    assert!(picked(note, "How many beds can I have in one garden?")[0].is_decisive);
    assert!(!picked("# Care\n\nA bed in the garden needs water.\n", "What is a garden bed?")[0].is_decisive);
    assert!(!picked("# Care\n\nA bed needs water.\n", "How deep is the soil of a bed of oak?")[0].is_decisive);
}

#[test]
fn closest_units_are_few_and_one_that_fills_a_screen_stands_alone() {
    let rows: String = (0..40).map(|at| format!("bed {at} holds beans\n")).collect();
    let question = "Which bed holds beans in winter?";
    let long = picked(&format!("# Beds\n\nA bed holds beans in winter as listed here:\n\n```\n{rows}```\n"), question);
    let short = picked("# Beds\n\nA bed holds beans.\n", question);
    assert_eq!(closest([&long[..], &short[..]].concat()), long);
    assert_eq!(closest([&short[..], &short[..], &long[..]].concat()), [&short[..], &short[..]].concat());
}

#[test]
fn items_of_a_long_list_that_answer_alike_are_shown_from_the_first_one() {
    let animals: String = (0..60).map(|at| format!("- animal{at}\n")).collect();
    let found = picked(
        &format!("# Zoo\n\nThe animals kept in the zoo are:\n\n{animals}"),
        "Which animals are kept in the zoo?",
    );
    let shown = quotes(&found[0]).join("\n");
    assert!(
        shown.starts_with("The animals kept") && shown.contains("- animal30\n") && !shown.contains("- animal50"),
        "{shown}"
    );
    let steps: String = (0..12)
        .map(|at| format!("1. Fit part{at}.\n   - Loosen the bolt.\n   - Slide it in.\n   - Tighten it.\n"))
        .collect();
    let note = format!("# Mill\n\nTo assemble the mill, follow these steps:\n\n{steps}");
    let shown = quotes(&picked(&note, "How do I assemble the mill?")[0]).join("\n");
    assert!((0..12).all(|at| shown.contains(&format!("part{at}."))), "{shown}");
}

#[test]
fn plural_and_product_behind_the_name_of_its_maker_are_defined_by_what_opens_their_section() {
    let note = "# Guide\n\n## Shears\n\nShears are long blades on two handles. For example, cut a hedge with them.\n\n\
        ## Acme Mower\n\nThe Acme Garden Mower provides blades for wide lawns. You should not use the Garden Mower in rain.\n";
    assert_eq!(picked(note, "What is a shear?")[0].text, "Shears are long blades on two handles.");
    let note = note.replace("## Acme Mower", "## Acme Garden Mower");
    let found = picked(&note, "What is the garden mower?");
    assert_eq!(found[0].text, "The Acme Garden Mower provides blades for wide lawns.");
    assert!(found[0].says_most);
}

#[test]
fn row_that_points_elsewhere_behind_its_value_decides() {
    let table = "# Changes\n\n| change | text | date |\n|---|---|---|\n| New | Adds support for oak. For more information, see Oaks. | \
        July 7, 2020 |\n| Guide | This is the first guide to support beds. | May 11, 2020 |\n";
    assert!(picked(table, "When was oak support added?")[0].text.ends_with("July 7, 2020"));
}

#[test]
fn steps_stand_below_the_text_of_their_section() {
    let note = "# Sorting\n\nBeds are sorted by height by default. To sort beds by age instead of height, make the age of the beds \
        sortable.\n\n**Gardener**\n\n1. Open the gate.\n1. Turn the board around.\n";
    let found = picked(note, "How do I sort beds by age instead of height?");
    let quotes: Vec<_> = found.iter().flat_map(quotes).collect();
    assert!(quotes[0].starts_with("Beds are sorted") && quotes.concat().contains("1. Turn the board"), "{quotes:#?}");
}

#[test]
fn numbered_steps_begin_with_the_first_and_stand_in_their_order() {
    let fence = "```sh\nturn\n```";
    let note = format!(
        "# Pump\n\n## Oiling the pump\n\n1. Open the hood:\n\n{fence}\n\n2. Oil the pump:\n\n{fence}\n\n3. Shut the hood:\n\n{fence}\n"
    );
    let found = picked(&note, "How do I oil the pump?");
    assert!(quotes(&found[0])[0].starts_with("1. Open the hood"), "{found:#?}");
}

#[test]
fn list_that_undoes_the_task_is_not_added_to_its_text() {
    let note = "# Lamps\n\n## To light or disable lamps\n\nYou can enable and disable the lamps of the garden.\n\n**To disable the lamps of the \
                garden by the box beside the northern gate**\n\n1. Open the box.\n2. Pull it.\n";
    let all = |question: &str| picked(note, question).iter().flat_map(quotes).collect::<String>();
    assert!(!all("How do I turn on the lamps of the garden?").contains("Pull it"));
    assert!(all("How do I turn off the lamps of the garden?").contains("2. Pull it"));
}

#[test]
fn list_is_shown_with_the_one_beside_it_whose_lead_in_is_almost_the_same() {
    let note = "# Garden\n\n## Keys\n\nOnly the owner of a key can do the following things:\n\n- Copy the key for others.\n- Sell the \
        key.\n\nYou can do the following things with a key of another owner:\n\n- Open the gate.\n- Hand it back.\n\n## Gates\n\nThese \
        gates are made of oak:\n\n- The key gate.\n";
    let found = picked(note, "What can I do with a key that another owner copied for me?");
    let shown = quotes(&found[0])[0];
    assert!(shown.contains("Sell the key") && shown.contains("Hand it back") && !shown.contains("oak"), "{shown}");
}

#[test]
fn steps_have_the_text_above_them_and_code_the_text_that_explains_it() {
    let rest = "Ask the smith where the coal for the forge of the village lies in the winter.\n\n".repeat(12);
    let note = format!(
        "# Pump\n\n## Sharing the pump\n\n{rest}```sh\nlock\n```\n\nFirst tell the miller.\n\n**To share the pump of the garden**\n\n1. Open \
         the gate.\n2. Turn the board around.\n"
    );
    let found = picked(&note, "How do I share the pump of the garden?");
    let shown = quotes(&found[0])[0];
    assert!(shown.starts_with("First tell the miller.") && shown.contains("2. Turn"), "{shown}");
    let note = format!(
        "# Pump\n\n## Rows\n\n{rest}Sort the rows of the pump:\n\n```sh\nsort --down rows pump\n```\n\nIn this command, `--down` puts the \
         largest first.\n\n{rest}"
    );
    let found = picked(&note, "How do I sort the rows of the pump?");
    assert!(quotes(&found[0])[0].contains("puts the largest first"), "{found:#?}");
}

#[test]
fn steps_of_a_task_on_something_else_are_no_answer() {
    let note = "# Pump\n\n**To share the pump with a mill**\n\n1. Open the gate.\n2. Turn the mill around.\n";
    let lacks = |question: &str| lacks(note, question);
    assert!(lacks("How do I turn on night mode for the mill?"));
    assert!(!lacks("How do I share a pump with the mill?") && !lacks("How do I turn it around?"));
}

#[test]
fn sentence_that_contrasts_the_things_compared_comes_first() {
    let note = "# Pumps\n\nA pump has pistons. This note is about the difference between pumps and pistons, and about all pumps.\n\n## \
        Summary\n\n- The pump is the machine; the piston is a part of it.\n- Both are oiled.\n\n## Pistons\n\nPistons of a pump move in the \
        pump, as all pistons of the pumps of this mill do.\n";
    let found = picked(note, "What is the difference between a pump and a piston?");
    assert!(quotes(&found[0])[0].contains("is the machine"), "{found:#?}");
}

#[test]
fn sentence_with_a_person_answers_who() {
    let note =
        "# Gate\n\nThe gate may be opened at night if it is dark. The gate may be opened by the owner. It is red.\n";
    assert!(picked(note, "Who may open the gate?")[0].text.contains("owner"));
    for text in ["Ask Ada Lovelace first.", "Write to @smith.", "A maintainer lands it."] {
        assert!(asked::names_person(text), "{text}");
    }
    assert!(!asked::names_person("The gate is red. It may open."));
}

#[test]
fn message_is_shown_with_its_explanation_which_decides() {
    let note = "# Errors\n\n`Failed to open the shed. Please bring a key.`\n\nThe shed is locked at night. If you get this error, ask \
        the gardener.\n";
    let found = picked(note, "I get \"Failed to open the shed\", what do I do?");
    assert!(!found[0].text.starts_with('`') && quotes(&found[0])[0].contains("ask the gardener"), "{found:#?}");
}

#[test]
fn sentence_is_clear_if_it_leads_the_others_and_an_item_does_not_say_how() {
    let note = "# Pump\n\nThe pump is red. Its wheel weighs forty pounds without the axle.\n";
    let is_clear = |note: &str, question: &str| picked(note, question)[0].is_clear;
    assert!(is_clear(note, "What does the wheel weigh without its axle?"));
    assert!(!is_clear("# Pump\n\n- The pump is red.\n- The pump is old.\n- The pump is dry.\n", "Is the pump sold?"));
    let list = "# Known faults\n\n- The seal leaks oil in winter.\n- The lamp is dark.\n";
    assert!(is_clear(list, "Does the seal leak in winter?") && !is_clear(list, "Why does the seal leak in winter?"));
    for question in ["How do I weigh the wheel without its axle?", "What are the parts of the wheel without its axle?"]
    {
        assert!(!is_clear(note, question), "{question}");
    }
}

#[test]
fn name_in_brackets_is_defined_by_the_sentence_that_spells_it_out() {
    let note =
        "# Waiting\n\nIt is slow at first. Ask the smith.\n\nTime to first oil (TTFO) is a measure of a slow pump.\n";
    assert!(picked(note, "What is meant by TTFO?")[0].text.starts_with("Time to first oil"));
}

#[test]
fn list_that_undoes_the_task_is_not_shown_between_others() {
    let actions = "To grant access to the lists of the garden (renaming, deactivating, uploading), allow these actions on \
        the list:\n\n```json\n{\"Action\": [\"list:Put\", \"list:Delete\"]}\n```\n";
    let document = format!(
        "# Lists\n\n## Permissions for lists\n\n{actions}\n## To activate or deactivate lists\n\nYou can activate or \
         deactivate lists once they are uploaded.\n\n**To activate lists \\(console\\)**\n\n1. Open the console.\n\n1. \
         Choose the list.\n\n**To deactivate lists \\(API or CLI\\)**\n+ Deactivating lists through the console is not \
         supported.\n\n  Run `update --no-activate`.\n"
    );
    let found = picked(&document, "How do I turn off a list that I already uploaded?");
    let text: String = found.iter().flat_map(quotes).collect();
    assert!(text.contains("--no-activate") && !text.contains("Choose the list"), "{text}");
}

#[test]
fn paragraph_that_only_announces_its_topic_gives_way_to_one_that_says_something() {
    let topic = |said: &str| format!("# Filling a pump\n\nThis topic describes how to fill the pump.\n\n{said}");
    let answer = |said: &str| picked(&topic(said), "How do I fill the pump?").swap_remove(0).text;
    assert_eq!(answer("Open the valve and pour until it overflows.\n"), "Open the valve and pour until it overflows.");
    assert_eq!(answer(""), "This topic describes how to fill the pump.", "there is nothing else");
    let topic = "# Filling a pump\n\nThis page describes how to fill the pump. See Valves and Taps for more on \
        pumps.\n\nOpen the valve and pour until it overflows.\n";
    let found = picked(topic, "How do I fill the pump?").swap_remove(0).text;
    assert!(found.starts_with("Open the valve"), "a pointer beside it says nothing either: {found}");
    let referring =
        "## Questions\n\nHow do I fill the pump? See Filling.\n\n## Valves\n\nOpen the valve of the pump to fill it.\n";
    assert!(answer(referring).starts_with("Open the valve"), "{}", answer(referring));
    let both = "In this article, you'll learn about pumps. Fill the pump before you run it.";
    assert!(answer(both).contains("before you run it"), "{}", answer(both));
}

#[test]
fn list_of_what_a_document_covers_gives_way_unless_it_names_what_is_requested() {
    let topics = |head: &str| {
        format!(
            "# Pump valves\n\n{head}\n\n- Reading the valves of the pump\n- Closing them\n\n## Valves\n\nBoth valves \
             of the pump are read at noon.\n"
        )
    };
    let answer = |head: &str| picked(&topics(head), "Which valves of the pump can I read?").swap_remove(0).text;
    assert_eq!(answer("This article also covers:"), "Both valves of the pump are read at noon.");
    let answer = answer("This article describes the following valves:");
    assert!(answer.contains("Reading the valves"), "{answer}");
}

#[test]
fn steps_of_a_task_define_nothing() {
    let answer = |title: &str, said: &str| {
        let document = format!(
            "# {title}\n\n{said}\n\n## Instructions\n\n1. Ask whether the pump takes chained valves.\n2. Send the \
             chained valves.\n"
        );
        picks(&[(title, &document)], "What are chained valves?", &[]).units.swap_remove(0).text
    };
    let said = "The pump avoids a leak by sending water through a chain of valves.";
    assert_eq!(answer("How to send chained valves", said), said);
    let answer = answer("Chained valves", "It is old.");
    assert!(answer.contains("chained valves"), "the note is about them: {answer}");
}

#[test]
fn history_of_a_product_gives_way_to_the_note_that_explains_it() {
    let history = ("Document history of the pump", "Keeping the logs of the pump was added.\n");
    let note = ("Logs", "The pump keeps its logs for ninety days.\n");
    let units = picks(&[history, note], "How long does the pump keep its logs?", &[]).units;
    assert!(units[0].text.contains("ninety days"), "{}", units[0].text);
    let units = picks(&[history, note], "When was keeping the logs of the pump added?", &[]).units;
    assert!(units[0].text.contains("added"), "{}", units[0].text);
    let table = "| Version | Changes |\n|---|---|\n| 1.2 | Logs that the pump keeps for long are compressed. |\n";
    let units = picks(&[("Setup", table), note], "How long does the pump keep its logs?", &[]).units;
    assert!(units.len() == 1 && units[0].text.contains("ninety days"), "{units:?}");
}

#[test]
fn at_least_one_does_not_say_how_many() {
    assert!(!Wanted::Number.is_in("Attach at least one valve to the pump.") && Wanted::Number.is_in("one valve"));
}

#[test]
fn sections_near_the_best_are_listed_and_others_are_not() {
    let document = "# Valves\n\n## Opening\n\nThe valve of the pump is opened by the gardener at six.\n\n## Closing\n\n\
        The valve of the pump is closed by the smith at nine.\n\n## Paint\n\nGreen is the colour of all.\n";
    let Picks { units, others } = picks(&[("Valves", document)], "Who opens the valve of the pump?", &[]);
    assert!(units[0].text.contains("gardener"), "{}", units[0].text);
    let listed: Vec<_> = others.iter().map(|other| other.snippet.as_str()).collect();
    assert_eq!(listed, ["The valve of the pump is closed by the smith at nine."]);
}

#[test]
fn text_for_further_reading_has_no_code_and_no_marks_of_a_quotation() {
    assert_eq!(prose("> Open it\n> by hand:\n\n  ```sh\nopen\n```\nDone.\n"), "Open it\nby hand:\n");
}

#[test]
fn short_unit_does_not_lead_longer_ones_that_have_its_words_but_a_copy_does_not_compete() {
    let splitter = WordSplitter::default();
    let sought = Sought::of("What is a pump?", &splitter);
    let short = "The pumps have valves.\n";
    let long = "The pumps have valves, which open when the cistern above the garden is full of rain.\n";
    let leads = |documents: [&str; 2]| {
        let readings = documents.map(|document| reading("Pumps", document));
        let (candidates, _) = candidates(&readings, &[], &sought);
        let at = candidates.iter().position(|own| own.text() == documents[0].trim_end()).unwrap();
        candidate::lead(at, &candidates)
    };
    assert!(leads([short, long]) < 1.0);
    assert!((leads([long, long]) - 1.0).abs() < f32::EPSILON);
}

#[test]
fn question_for_one_thing_is_not_answered_by_steps_that_share_its_words() {
    let steps = "1. Open the valve of the pump.\n2. Call the smith.\n3. Wait for the frost to go.\n4. Paint the wheel.\n\
        5. Oil the chain of the gate.\n6. Ring the bell of the mill.\n";
    let document = format!(
        "# Mill\n\n## Care\n\n{steps}\n## Frost\n\nIn the cold months, the smith of the village protects the valve from frost with a blanket of wool.\n"
    );
    let found = picked(&document, "What protects the valve of the pump from frost in the mill?");
    assert!(found[0].text.contains("protects"), "{found:#?}");
    let found = picked(&document, "How do I care for the mill?");
    assert!(quotes(&found[0])[0].starts_with("1. Open"), "{found:#?}");
}

#[test]
fn steps_are_no_list_of_what_is_asked_for() {
    let document = "# Pump driver\n\n## Install the pump driver\n\n1. Open the box.\n2. Turn the key.\n\n## Reference\n\n\
        The pump driver reports these errors:\n\n- no water\n- no oil\n";
    let found = picked(document, "Which errors can the pump driver report?");
    assert!(quotes(&found[0])[0].contains("no oil"), "{found:#?}");
}

#[test]
fn list_that_is_announced_comes_before_one_that_only_the_title_is_about() {
    let document = "# Pump sensors\n\nHere are the supported sensors:\n\n- heat\n- rain\n\n## Overview\n\n- A guard reads \
        the sensors of the pump and reports what they show to the miller, who understands it.\n- The pump sends it on.\n";
    let found = picked(document, "Which sensors does the pump understand?");
    assert!(quotes(&found[0])[0].contains("- rain"), "{found:#?}");
}

#[test]
fn item_with_the_requested_value_is_shown_of_a_long_list() {
    let item = |name: &str, said: &str| format!("- {name} length\n\n    {said}\n\n");
    let items = [
        item("Pump report", "The mill does not limit it, but the smith may do so for the pump, the largest of all."),
        item("Bell", "The bell is not long, and it rings when the gate is open to the people of the village."),
        item("Wheel", "The wheel is older than the mill, and turns in the rain until the miller stops it for good."),
        item("Input report", "The largest report of a pump is 8 KB."),
    ];
    let document = format!("# Limits\n\n{}", items.concat());
    let found = picked(&document, "What is the largest report of a pump?");
    assert!(quotes(&found[0]).concat().contains("8 KB"), "{found:#?}");
    assert_eq!(AnswerKind::of("What is the largest report of a pump?"), AnswerKind::Number);
}

#[test]
fn unit_with_the_requested_value_comes_before_one_that_matches_as_well() {
    let document = "# Pump\n\n## Arguments\n\nThe guard passes the arguments to a method of the pump, as the miller of the mill has told \
        him.\n\n## Counts\n\nA method of the pump of the mill takes up to seven arguments, says the miller, and not one \
        more.\n\n## Gate\n\nThe people of the village pass the gate of the garden by day, and the guard sees them.\n";
    let found = picked(document, "How many arguments can one pass to a method of the pump in the mill?");
    assert!(found[0].text.contains("seven"), "{found:#?}");
}

#[test]
fn item_that_alone_has_the_question_answers_a_question_for_values() {
    let document = "# Handler\n\nSupply the following:\n\n- The object of the guard.\n\n- The type of region space.\n\n    \
        The value is one from 128 to 255.\n\n- A pointer to the bell.\n";
    let found = picked(document, "Which values may the region space type have?");
    assert!(found[0].is_decisive && found[0].text.contains("region space"), "{found:#?}");
}

#[test]
fn steps_that_are_numbered_in_words_are_steps() {
    let document = "# Letters\n\n## When do you need a letter?\n\n- For a loan of the bank\n- For a visa\n\n## How do I \
        request a letter?\n\n- **Step 1**: Write to the miller.\n- **Step 2**: Wait.\n";
    let found = picked(document, "How do I get a letter for a loan?");
    let text: String = found.iter().flat_map(quotes).collect();
    assert!(text.contains("Write to the miller"), "{found:#?}");
}

#[test]
fn list_of_another_thing_that_a_question_names_is_not_the_requested_one() {
    let has_form = |lead_in: &str| {
        let document = format!("# Mill\n\nThe smiths ring.\n\n{lead_in}\n\n- The old one\n- The new one\n");
        let readings = [reading("Mill", &document)];
        let splitter = WordSplitter::default();
        let sought = Sought::of("Which smiths ring the bells of the mill?", &splitter);
        let (candidates, _) = candidates(&readings, &[], &sought);
        candidates.iter().any(|own| own.text().contains("old one") && own.features.has_form())
    };
    assert!(has_form("The mill has the following smiths:") && !has_form("The mill has the following bells:"));
}

#[test]
fn requested_list_of_links_is_no_table_of_contents() {
    let links = "- [PumpInit](pump-init.md)\n- [PumpStop](pump-stop.md)\n- [PumpWait](pump-wait.md)\n";
    let document = |lead_in: &str| format!("# Pumps\n\n{lead_in}\n\n{links}\n");
    let links = |lead_in: &str| {
        let readings = [reading("Pumps", &document(lead_in))];
        let splitter = WordSplitter::default();
        let sought = Sought::of("Which functions must a pump export?", &splitter);
        let (candidates, _) = candidates(&readings, &[], &sought);
        candidates[0].features.values().iter().any(|(name, value)| *name == "links" && *value > 0.0)
    };
    assert!(!links("A pump must export these functions:"));
    assert!(links("For the functions of a pump, see the following topics:"));
}

#[test]
fn who_does_something_does_not_decide_what_denies_it() {
    let document = "# Bell\n\nThe pump connects to the wheel.\n\n## Rope\n\nThe bell doesn't work over a rope.\n\n## Gate\n\n\
        The people of the mill, who are many, do not connect it to the gate of the garden.\n";
    let found = picked(document, "Can the bell be used when users and guests connect over a rope?");
    assert!(found[0].text.contains("over a rope"), "{found:#?}");
    let readings = [reading("Data", "Only the smith writes the log of the pump. However, he must not burn it.\n")];
    let splitter = WordSplitter::default();
    let sought = Sought::of("May the smith burn the log of the pump?", &splitter);
    let (candidates, weights) = candidates(&readings, &[], &sought);
    assert!(sought.says_no(&candidates[0].unit.sentences, 1, &HashSet::new(), &weights));
    let readings = [reading("Accounts", "Guests can't delete the account of the mill.\n")];
    let says_no = |question: &str| {
        let sought = Sought::of(question, &splitter);
        let (candidates, weights) = candidate::candidates(&readings, &[], &sought);
        sought.says_no(&candidates[0].unit.sentences, 0, &HashSet::new(), &weights)
    };
    assert!(says_no("Can guests delete the account?") && !says_no("Can owners delete it?"));
}

#[test]
fn list_of_links_is_left_out_only_for_the_linked_note_that_says_the_same() {
    let index = "| note | about | owner |\n|---|---|---|\n| [Pump stop](a.md) | The pump stops in the night by itself | Ann |\n\
        | [Bell](b.md) | The bell of the gate | Bo |\n";
    let note = "The pump stops in the night by itself.\n";
    let first = |index: &str, question: &str| {
        let found = picks(&[("Index", index), ("Pump stop", note)], question, &[]).units;
        found[0].document.place.title().to_owned()
    };
    // Both readings are of `a.md`.
    assert_eq!(first(index, "Who owns the note on the pump that stops in the night?"), "Index", "Ann is only there");
    let index = index.replace(" Ann ", " ").replace(" Bo ", " ");
    assert_eq!(first(&index, "When does the pump stop by itself?"), "Pump stop");
    let changes = "- [The pump has a new valve](a.md#12)\n- [The lamp is blue](a.md#13)\n\nThe lamp was painted.\n";
    assert!(picked(changes, "What is the new valve of the pump?")[0].quotes[0].quote.contains("new valve"));
}

#[test]
fn row_whose_name_is_asked_for_decides() {
    let document = "# Wake\n\n| Event | When | Latency |\n|---|---|---|\n| Bitmap | any packet that matches, when armed | 300 ms |\n\
        | MagicPacket | magic packet | 200 ms |\n";
    let found = picked(document, "What is the latency of a bell that is armed for magic packet wake?");
    assert!(found[0].text.starts_with("MagicPacket"), "{found:#?}");
    let document = "# Tax\n\n| Country | Rate |\n|---|---|\n| UK | 20 % |\n| US | 0 % |\n| Germany | 19 % |\n";
    let found = picked(document, "What tax rate do we charge customers in Germany?");
    assert!(!found[0].text.starts_with("US"), "no row is named by a part of \"customers\": {found:#?}");
}

#[test]
fn optional_list_is_not_the_one_of_what_is_required() {
    let list = |modal: &str, items: &str| format!("The miller {modal} check the following bells:\n\n{items}\n\n");
    let may = list("may", "- the small bell of the gate\n- the blue bell");
    let must = list("must", "- the iron bell\n- the old bell");
    let found = picked(&format!("# Mill\n\n{may}{must}"), "Which bells must the miller of the gate check?");
    assert!(found[0].quotes[0].quote.contains("iron"), "{found:#?}");
    let splitter = WordSplitter::default();
    let is_optional = |text: &str| {
        let sought = Sought::of("Which bells must the miller of the gate check?", &splitter);
        sought.is_optional(&crate::research::unit::units(text)[0])
    };
    assert!(is_optional(&may) && !is_optional(&must));
    assert!(!is_optional(&list("may not", "- a\n- b")) && !is_optional("Check the bell. It may ring.\n"));
}

#[test]
fn unit_without_a_name_of_the_question_stays_if_its_document_has_it() {
    let document = "# Pumps\n\nA pump is called Otto or Emil.\n\n## Start\n\nTo start it:\n\n1. Turn the wheel.\n2. Open the tap.\n";
    let names = [ProperName { word: "Otto".into(), documents: std::collections::BTreeSet::new() }];
    let found = picks(&[("Pumps", document), ("Bells", "To start it, ring.\n")], "How do I start Otto?", &names).units;
    assert!(
        found.iter().any(|own| own.quotes.iter().any(|quote| quote.quote.contains("Turn the wheel"))),
        "{found:#?}"
    );
}

#[test]
fn table_of_contents_is_measured_row_by_row_and_counts_as_links() {
    let measured = |heading: &str, name: fn(&str) -> String| {
        let row = |of: &str, about: &str| format!("| {} | {about} |\n", name(of));
        let rows = row("Pumps", "The pumps of the mill.")
            + &row("Modes", "How bells ring.")
            + &row("Wheel", "It turns.")
            + &row("Gate", "It creaks.");
        let document = format!("# Mill\n\n## {heading}\n\n| Topic | About |\n|---|---|\n{rows}");
        let readings = [reading("Mill", &document)];
        let splitter = WordSplitter::default();
        let sought = Sought::of("Which pumps ring their bells in modes of a wheel?", &splitter);
        let (candidates, _) = candidates(&readings, &[], &sought);
        let features = &candidates[0].features;
        let links = features.values().iter().any(|(name, value)| *name == "links" && *value > 0.0);
        (features.says() >= SAYS_MOST, links)
    };
    let linked = |of: &str| format!("[{of}]({of}.md)");
    assert_eq!(measured("Parts", str::to_owned), (true, false));
    assert_eq!(measured("Parts", linked), (true, false));
    assert_eq!(measured("In this section", linked), (false, true));
}

#[test]
fn text_of_another_note_that_a_long_one_has_most_words_of_is_shown_beside_it() {
    let words = |from: usize, to: usize| (from..to).map(|at| format!("word{at}")).collect::<Vec<_>>().join(" ");
    let short = format!("The pump stops at noon {}.\n", words(0, 10));
    let long = format!("The pump stops at noon, says the long note, {}.\n", words(0, 90));
    let found = picks(&[("Long", &long), ("Short", &short)], "When does the pump stop at noon for lunch?", &[]).units;
    assert_eq!(found.len(), 2, "{found:#?}");
}

#[test]
fn question_in_bold_is_the_heading_of_its_answer() {
    let document = "# Bells\n\nThe bells of the mill are shipped to all who ring them in the valley of the river.\n\n\
        **Q: Can we ship bells to someone outside the valley?**\n\nYes. The carter takes them.\n\n**May I ring?**\n\nNo.\n";
    let found = picked(document, "Can we ship a bell to people outside of the valley?");
    assert!(found[0].quotes[0].quote.starts_with("Yes."), "{found:#?}");
    let open = "# Open\n\n**Who owns the gate?**\n\n**Who rings?**\n\n# History\n\nThe gate was built in 1820.\n";
    let found = picked(open, "Who owns the gate?");
    assert!(found[0].quotes[0].quote.contains("Who owns"), "{found:#?}");
}

#[test]
fn entry_of_a_glossary_defines_its_heading() {
    let entry = "To start it by a dot. It then runs in the scope of the caller.\n";
    let glossary = format!("## D\n\n### dot source\n\n{entry}\n### dump\n\nA heap.\n");
    let chapter = "Dot sourcing is not covered by the chapter on dot sourcing of the pumps in the garden.\n";
    let documents = [("Chapter", chapter), ("Pump glossary", glossary.as_str())];
    let found = picks(&documents, "What is dot sourcing?", &[]).units;
    assert!(found[0].text.starts_with("To start it by a dot."), "{found:#?}");
}

#[test]
fn what_happens_is_answered_by_a_condition_and_why_by_a_reason() {
    let both = |answer: &str, other: &str| format!("# Gate\n\n## Use\n\n{other}\n\n## Rules\n\n{answer}\n");
    let condition = "If the gate is pushed at night, the bell of the mill rings until the miller comes to look.";
    let other = "The gate is pushed by the carter, and the bell of the mill is rung by him, night and day.";
    let found = picked(&both(condition, other), "What happens when the gate is pushed at night?");
    assert!(found[0].text.starts_with("If the gate"), "{found:#?}");
    let reason = "Close the gate of the mill in the evening, because the hens of the miller would leave by it.";
    let other = "Close the gate of the mill in the evening with the chain that the smith of the village has made.";
    let found = picked(&both(reason, other), "Why do I close the gate of the mill in the evening?");
    assert!(found[0].text.contains("because"), "{found:#?}");
    assert_eq!(AnswerKind::of("What happens to pumps when I stop them?"), AnswerKind::Other);
    assert_eq!(AnswerKind::of("It broke, what do I do?"), AnswerKind::Steps);
}

#[test]
fn release_includes_the_later_ones_if_the_text_says_so() {
    let note = "# Pump\n\nThe driver works on Linen 4 and later.\n";
    assert!(!lacks(note, "Does the driver work on Linen 10?"));
    assert!(lacks(note, "Does the driver work on Wool 10?"));
    assert!(lacks("# Pump\n\nThe driver works on Linen 11 and later.\n", "Does the driver work on Linen 10?"));
    assert!(lacks("# Pump\n\nThe pump runs on 24 volts and above.\n", "Does the pump run on 12 volts?"));
    assert!(lacks("# Pump\n\nThe driver works on Linen 4.\n", "Does the driver work on Linen 10?"));
}

#[test]
fn cell_beside_the_term_defines_it_only_below_a_header_for_meanings() {
    let table = |header: &str| {
        format!(
            "# Parts\n\n| Part | {header} |\n|---|---|\n| Valve (V) | Opened with a key |\n| Tap | Opened by hand |\n\n\
             ## Water\n\nThe water flows through a part of the pump that the smith calls a valve.\n"
        )
    };
    let splitter = WordSplitter::default();
    let sought = Sought::of("What is a valve?", &splitter);
    let defines = |header: &str| {
        let text = table(header);
        units_in(&reading("Parts", &text).document).iter().any(|unit| sought.defining(unit, &text).is_some())
    };
    assert!(defines("Description") && !defines("Access"));
}

#[test]
fn entry_of_a_glossary_behind_an_anchor_is_shown_without_its_neighbours() {
    let entry = |term: &str, text: &str| format!("<span id=\"{term}\"></span>**{term}**  \n{text}\n\n");
    let text = format!(
        "# Words\n\n{}{}",
        entry("valve", "A part that lets water through."),
        entry("wheel", "A part that the water turns.")
    );
    let found = picked(&text, "What is a valve?");
    assert!(!found[0].quotes[0].quote.contains("wheel"), "{found:#?}");
}

#[test]
fn disclaimer_is_no_context() {
    let text = "# Pump\n\n> The smith makes no warranties for this table.\n\n| pump | days |\n|---|---|\n| old | 10 |\n\
        | new | 300 |\n";
    let found = picked(text, "How many days does the new pump last?");
    assert!(found.iter().flat_map(quotes).all(|quote| !quote.contains("warranties")), "{found:#?}");
}

#[test]
fn line_in_bold_ends_the_text_that_is_read_on() {
    let text = "# Gate\n\nThe gate is shut at night by the watchman of the mill.\n\n\
        **<span>Violations of the rules</span>**\n\nThe miller is told of it.\n";
    let quote = picked(text, "Who shuts the gate at night?")[0].quotes[0].quote.clone();
    assert!(quote.ends_with("of the mill."), "{quote}");
}

#[test]
fn list_with_an_item_for_each_thing_compared_decides() {
    let list = |second: &str| {
        format!(
            "# Faults\n\nWe know two:\n\n1. Critical - The mill stands still.\n2. {second} - The mill is slow.\n\n\
             Others are left to the smith.\n"
        )
    };
    let question = "What's the difference between a critical and a major fault?";
    let decides = |second: &str| picked(&list(second), question)[0].is_decisive;
    assert!(decides("Major") && !decides("Minor"));
}

#[test]
fn text_that_names_all_things_compared_comes_before_one_that_names_some() {
    let text = "# Mill\n\n## Bells\n\nA bell is different: the bell of the mill is heard and the bell is rung at \
        noon.\n\n## Sounds\n\nThe bell of the mill is heard at noon and the horn is heard at night.\n";
    let found = picked(text, "What is the difference between the bell and the horn?");
    assert!(found[0].quotes[0].quote.contains("horn"), "{found:#?}");
}

#[test]
fn use_of_a_term_is_not_emphasised_as_its_definition() {
    let answer = |sentence: &str| {
        let text = format!("# Notes\n\nThe mill is old. {sentence} It was painted in spring.\n");
        let is_clear = |question: &str| picked(&text, question).swap_remove(0).is_clear;
        assert_eq!(is_clear("What is a hand pump?"), is_clear("What does a hand pump do?"), "{sentence}");
        is_clear("What is a hand pump?")
    };
    assert!(answer("A hand pump is a machine that moves water."));
    assert!(!answer("Ann waters the garden with the hand pump."));
}

#[test]
fn sentence_for_those_in_doubt_does_not_decide() {
    let text = "# Second jobs\n\nIf you’re uncertain whether a second job is allowed, ask the miller. \
        A second job is fine up to ten hours.\n";
    assert!(picked(text, "Is a second job allowed?")[0].text.starts_with("A second job is fine"));
    let text = "# Work\n\nA job outside of the mill is fine up to ten hours of the week.\n\nIf you're unsure whether \
        you are allowed to have a second job on the side, including but not limited to the carter's, ask the miller.\n";
    let found = picked(text, "Am I allowed to have a second job on the side?");
    assert!(found[0].quotes[0].quote.contains("ten hours") && found[0].text.contains("ten hours"), "{found:#?}");
    assert!(!super::negation::negates("Any work, including but not limited to yours, is work."));
}

#[test]
fn lead_in_that_says_what_happens_decides() {
    let text = "# Trial\n\nThe trial of the pump lasts a month. When the trial of a pump expires, the miller has \
        to:\n\n- buy the pump\n- send it back\n";
    let found = picked(text, "What happens when the trial of a pump expires?");
    assert!(found[0].text.starts_with("When the trial"), "{found:#?}");
}

#[test]
fn amount_of_data_is_answered_by_a_number_of_bytes_and_only_the_counted_noun_counts() {
    let note = "# Pump\n\n## Reports\n\nThe pump stores the report data for the miller when the wheel is reset, and \
        the guard of the mill may read the report data of the pump in three days.\n\nThe size of report data is 1 \
        MB.\n";
    let found = picked(note, "How much report data can the pump store when the wheel is reset?");
    assert!(found[0].text.contains("1 MB"), "{found:#?}");
    let question = "What is the maximum number of oil queues a pump can use?";
    assert!(lacks("# Pump\n\nA pump can use oil. It has four oil callbacks.\n", question));
    assert!(!lacks("# Pump\n\nA pump can use at most four oil queues.\n", question));
    assert!(lacks("# Pump\n\nA pump can use four oil callbacks.\n", "How many oil queues can a pump use?"));
    let question = "How many kilobytes may a picture of the pump have at most?";
    assert!(lacks("# Pump\n\nA picture of the pump may have at most 1200 x 600 dots.\n", question));
    assert!(!lacks("# Pump\n\nA picture of the pump may have at most 40 KB.\n", question));
}

#[test]
fn length_in_figures_comes_before_a_few_minutes() {
    let vague = "Many guards wait a few minutes while the pump of the mill is busy, and then they stop it by hand.";
    let exact =
        "A busy pump has two minutes until the mill stops its wheel, as the smith has set it with an iron screw.";
    let question = "How long can the pump be busy before the mill stops it?";
    let found = picked(&format!("# Pump\n\n## Guards\n\n{vague}\n\n## Rules\n\n{exact}\n"), question);
    assert!(found[0].text.contains("two minutes"), "{found:#?}");
    assert!(lacks("# Pump\n\nMany guards wait a few minutes and leave.\n", question));
    assert!(!lacks("# Pump\n\nThe pump can be busy for a few minutes before the mill stops it.\n", question));
}

#[test]
fn value_of_an_item_with_none_of_the_words_is_another_value() {
    let list = "# Bills\n\nA bill has these lines:\n\n- The name of the miller.\n- What it is for: a lamp, a desk for \
        the home of the guard.\n- The day.\n- A cart is paid by the mill if it costs more than $1,500.\n";
    let limit = "# Money\n\nA guard may spend up to $200 for a desk at home.\n";
    let found = picks(&[("Bills", list), ("Money", limit)], "How much may a guard spend on a desk at home?", &[]).units;
    assert!(found[0].text.contains("$200") && found.len() == 1, "{found:#?}");
}

#[test]
fn exact_number_of_the_thing_comes_before_that_of_another() {
    let other =
        "# Words\n\nThat is 18 bytes. A bell in bytes is stored by the miller as bytes and bytes, says the bell.\n";
    let own = "# Kinds\n\nA bell takes 4 bytes in the books of the village, and it rings when the guard of the gate \
        comes home.\n";
    let question = "How many bytes is a bell?";
    let found = picks(&[("Words", other), ("Kinds", own)], question, &[]).units;
    assert!(found[0].text.contains("4 bytes"), "{found:#?}");
}

#[test]
fn item_is_about_the_thing_that_it_names_and_not_about_the_others_of_the_title() {
    let list = "# Lamps and candles\n\nConsider which is the better choice:\n\n- If the room is wet, candles are a \
        better choice.\n- If the room is large, lamps are a better choice.\n";
    for text in [list, &format!("{list}\nAnd if the room is both, you need not choose between lamps and candles.\n")] {
        let found = picked(text, "When are lamps a better choice than candles?");
        assert!(found[0].text.contains("large"), "{found:#?}");
    }
}

#[test]
fn sentence_with_implications_says_why() {
    let note = "# Pumps\n\nIn the future, the pumps will have a gate, and they move less often when wheels are added. \
        A wheel has two implications: they stand in one yard, and the pumps move when it comes.\n";
    assert!(picked(note, "Why do the pumps have to move when wheels are added?")[0].text.contains("implications"));
}

#[test]
fn what_recurs_is_answered_by_its_day_rather_than_by_dates() {
    let rows: String =
        (1..5).map(|month| format!("| Wheel {month} | wash of 2024-0{month}-09 | Monthly |\n")).collect();
    let note = format!(
        "# Mill\n\n## List of washes\n\n| wheel | wash | month |\n|---|---|---|\n{rows}\n## Washes\n\nThey usually are \
         on the 20th of each month, in the yard.\n"
    );
    let found = picked(&note, "When do washes take place each month?");
    assert!(found[0].text.contains("20th"), "{found:#?}");
}

#[test]
fn default_is_told_by_what_holds_if_the_value_is_missing() {
    let note = "# Pump\n\n## List\n\nThe list of the pump has a speed, and the speed in the list of the pump is used \
        for the list.\n\n## Rules\n\nThe speed in the list says which speed is used. If the entry for the speed \
        doesn’t exist, the pump runs at 3.\n";
    let found = picked(note, "Which speed is used if I leave the speed out of the list?");
    assert!(quotes(&found[0])[0].contains("runs at 3"), "{found:#?}");
}

#[test]
fn section_without_a_hit_answers_if_its_note_has_most_hits() {
    let filler =
        |name: &str| format!("## {name}\n\nThe {name} of the wheel is old and much loved by all in the village.\n\n");
    let answer = "The wheel of the mill turns for two hours before the miller stops it.";
    let document = format!("{}## Rules\n\n{answer}\n", ["gate", "roof", "door"].map(filler).concat());
    let first = |hits: usize| {
        let mut own = reading("Mill", &document);
        let at = |name: &str| document.find(&format!("The {name}")).unwrap();
        own.hits = ["gate", "roof", "door"].iter().take(hits).map(|name| (at(name)..at(name) + 9, 1.0)).collect();
        let question = "How long does the wheel turn before the miller stops it?".parse().unwrap();
        let node = NodeId::numbered(1);
        pick(&node, &question, &[], &[own], &WordSplitter::default(), None).unwrap().units.remove(0).text
    };
    assert_eq!(first(3), answer);
    assert_ne!(first(2), answer);
}

#[test]
fn reason_below_the_symptoms_that_a_question_repeats_is_shown() {
    let document = "# Mute bell\n\n## Symptoms\n\nThe bell of the mill has no sound after the smith has changed its \
                    rope.\n\n## Cause\n\nThe rope is too long for the wheel.\n\n## Resolution\n\nUse one of the \
                    following ways.\n\n### A\n\nCut it.\n";
    let found = picked(document, "Why does the bell of the mill have no sound after the smith has changed its rope?");
    assert!(quotes(&found[0])[0].ends_with("too long for the wheel."), "{found:#?}");
}

#[test]
fn sentence_with_all_states_is_the_requested_list() {
    let said = "There are three lamp states: lit, dark, and broken. The lamp state is shown at the gate.";
    let list = "The lamp is used as follows:\n\n- Light it at dusk.\n- Put it out at dawn.\n";
    let document = format!("# Lamp\n\n## Use\n\n{list}\n## Rules\n\n{said}\n");
    let found = picked(&document, "Which lamp states are there?");
    assert!(found[0].text.starts_with("There are three lamp states"), "{found:#?}");
}

#[test]
fn numbered_list_of_another_task_or_of_events_is_no_procedure() {
    let text = "The guard stops the wheel by pulling the brake at the gate when he sees that it is wet.";
    let question = "How do I stop the wheel when it is wet?";
    for lead_in in ["To paint the roof, do this:", "When the wheel stops, the following happens:"] {
        let document =
            format!("# Wet wheel\n\n## Stop\n\n{text}\n\n## Notes\n\n{lead_in}\n\n1. A bell rings.\n2. All go.\n");
        let found = picked(&document, question);
        assert!(found[0].text.starts_with("The guard stops"), "{lead_in}: {found:#?}");
    }
}

#[test]
fn code_whose_lead_in_points_elsewhere_is_no_step() {
    let text = "You oil the wheel of the mill in three places, and it is done with the grease that the smith sells.";
    let code = "For information on how to oil the wheel of the mill, see the sample.\n\n```sh\noil wheel\n```";
    let document = format!("# Mill\n\n## Wheel\n\n{text}\n\n## Sample\n\n{code}\n");
    let found = picked(&document, "How do I oil the wheel of the mill?");
    assert!(found[0].text.starts_with("You oil"), "{found:#?}");
}

#[test]
fn item_with_most_words_of_the_question_states_what_happens() {
    let list = |says: &str| format!("These are the rules of the mill:\n\n- Oil it.\n- {says}\n- Paint the gate.\n");
    let condition = "If the gate is pushed at night, the bell rings until the miller comes.";
    let other = "The gate is pushed at night by the carter, and the bell of the mill rings for him alone.";
    let document = format!("# Gate\n\n## Use\n\n{other}\n\n## Rules\n\n{}\n", list(condition));
    let found = picked(&document, "What happens when the gate is pushed at night?");
    assert!(quotes(&found[0])[0].contains(condition), "{found:#?}");
}

#[test]
fn reason_is_on_the_subject_and_denies_what_a_question_takes_for_denied() {
    let other =
        "The gate of the mill is red and has a number, because the smith painted it with a number in the spring.";
    let answer = "The miller doesn't let people turn the wheel of the pump, for the reason that it breaks.";
    let document = format!("# Gate\n\n## Number\n\n{other}\n\n## Rules\n\n{answer}\n");
    let found = picked(&document, "Why can't I turn the wheel by its number?");
    assert_eq!(found[0].text, answer, "{found:#?}");
    let denial = "The lamp is not lit, because it is day. ".repeat(2);
    let document = format!(
        "# Mill\n\n## Lamp\n\n{denial}\n\n## Gate\n\nThe gate of the mill is painted by the carter each year.\n"
    );
    let found = picked(&document, "Why is the gate of the mill painted each year?");
    assert!(found[0].text.starts_with("The gate"), "{found:#?}");
}

#[test]
fn list_that_tells_when_to_use_each_of_several_things_comes_first() {
    let other = "When you use oil at 6 in the morning, the wheel turns. Do not use grease or wax at 7, or at 8.";
    let list = "These are the reasons to use oil, grease or wax:\n\n- Oil is thin.\n- Grease lasts.\n- Wax is dry.\n";
    let document = format!("# Mill\n\n## Use\n\n{other}\n\n## Recap\n\n{list}\n");
    let found = picked(&document, "When should I use oil, grease or wax?");
    assert!(quotes(&found[0])[0].contains("Grease lasts"), "{found:#?}");
    let each =
        "Think of this:\n\n- If the wheel is wet, oil is a better choice.\n- If it is dry, wax is a better choice.\n";
    let both = "- It is a better choice to have oil with wax.\n- It is a good choice.\n";
    let document = format!("# Mill\n\n## Use\n\nThey say:\n\n{both}\n## Recap\n\n{each}\n");
    let found = picked(&document, "When is oil a better choice than wax?");
    assert!(quotes(&found[0])[0].contains("wet, oil"), "{found:#?}");
    assert_eq!(AnswerKind::of("When is oil a better choice than wax?"), AnswerKind::Comparison);
    assert_eq!(AnswerKind::of("When should I use oil?"), AnswerKind::Time);
}

#[test]
fn caption_of_code_that_is_not_shown_is_cut_off_with_what_leads_to_it() {
    let document = "# Lamp\n\nThe lamp of the mill is lit by a rope. It is one inch in size, and is called `lamp`. For \
                    example:\n\n<span class=\"filename\">Filename: src/main.rs</span>\n\n```rust\n{{#include \
                    ../a.rs}}\n```\n";
    let found = picked(document, "What lights the lamp of the mill?");
    assert!(quotes(&found[0])[0].ends_with("called `lamp`."), "{found:#?}");
}
