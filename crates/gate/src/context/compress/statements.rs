//! Classifies sentences by structure: modal verbs, orders and negations, decisions in the first person, conjunctions that give a
//! reason, discourse markers. The word lists are closed classes in English, German and Chinese; names and nouns play no part.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use super::fact_kind::FactKind;

/// The kind of a sentence and the certainty of that kind: 3 if the form allows no other kind, 1 if a single word suggests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statement {
    pub kind: FactKind,
    pub strength: u8,
}

impl Statement {
    /// Lower is needed more.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match (self.strength, self.kind) {
            (3, FactKind::Constraint | FactKind::Flag | FactKind::Change) => 0,
            (3, _) => 1,
            (
                2,
                FactKind::Constraint | FactKind::Flag | FactKind::Change | FactKind::Commitment,
            ) => 3,
            (2, FactKind::Decision | FactKind::OpenDecision) => 4,
            (2, _) => 5,
            _ => 7,
        }
    }
}

/// A longer sentence tells rather than states, in bytes.
const LONG: usize = 260;

/// A sentence up to this many bytes is too short to hold a second statement.
const SHORT: usize = 100;

/// Words that may precede the first word of a sentence that counts.
const START: &str = r"(?i)^\W*(?:(?:and|but|so|also|please|remember|again|no|ok|okay|yes|right|oh|then|still|well|anyway|one more thing|und|aber|also|bitte|nein|ja|gut|dann|noch|übrigens|okay|außerdem)[,:]?\s+){0,2}";

/// Forms, by kind and strength; those with `^` begin a sentence.
const FORMS: &[(FactKind, u8, &str)] = &[
    // English
    (
        FactKind::Constraint,
        3,
        r"^(?:do not|don't|never|avoid|refrain|under no circumstances|in no case|make sure|be sure|ensure|keep (?:it|this|that|them|the|\w+) (?:out|away|off|secret|private|confidential|under)|leave \w+ (?:\w+ )?(?:alone|out|as)|always|only|nobody|no one|nothing|stay away|hands off|skip|no \w+ (?:before|until|without|after|on|in|to|for)\b)",
    ),
    (
        FactKind::Constraint,
        3,
        r"\b(?:must|shall|may|should|ought to|is to|are to|need to|have to|had better)(?: not|n't| never)\b|\bmustn't|\bshouldn't|\b(?:not|never) (?:be )?(?:allowed|permitted|supposed)\b|\boff limits\b|\bforbidden|\bprohibited|\b(?:is|are) not to be\b|\bunder no circumstances|\bcan(?:not|'t) (?:exceed|be (?:used|shared|changed|sent|moved|given|shown|told))",
    ),
    (
        FactKind::Constraint,
        2,
        r"\b(?:can't|cannot|won't|must|has to|have to|needs to|need to|is required|are required|is mandatory|supposed to|at most|at least|no more than|no later than|no earlier than|limited to|unless|only (?:if|when|after|by|with|once|for)|until \w+ (?:has|have|is|are|signs?|approves?|agrees?|says?)|without (?:\w+ ){0,3}(?:approval|consent|permission|asking|notice))\b",
    ),
    (
        FactKind::Constraint,
        2,
        r"\b(?:doesn't|does not|don't|do not|won't|will not) (?:want|like|need|wish|allow|let|accept) (?:\w+ ){0,4}(?:to|that|any)\b",
    ),
    (
        FactKind::Flag,
        3,
        r"^(?:heads[- ]?up|careful|be careful|watch out|beware|warning|caution|attention|be aware|mind (?:the|that|you)|note that|nb|fyi|important|red flag|bear in mind|keep in mind|just so you know|look out)\b",
    ),
    (
        FactKind::Flag,
        2,
        r"\b(?:warning|warn(?:ed|s)?|caution|careful|beware|heads[- ]up|watch out|red flag|be aware|keep in mind|danger(?:ous)?|risk(?:s|y)?|flagged|alert|worried|concern(?:ed|s)?|or else|otherwise)\b",
    ),
    (
        FactKind::Flag,
        2,
        r"\b(?:might|may|could|will|would|tends? to|likes? to|keeps?) (?:\w+ ){0,2}(?:break|fail|lose|crash|leak|overflow|delay|expire|run out|backfire|hurt|collapse|bite|freeze|spill|overheat|jam|tear|failing|breaking|crashing|leaking)\b",
    ),
    (
        FactKind::Change,
        3,
        r"^(?:change of plans?|actually|instead|scratch that|on second thoughts?|forget (?:what|the|about)|new plan|correction|update|never mind|as of (?:now|today))\b",
    ),
    (
        FactKind::Change,
        3,
        r"\b(?:change of plans?|changed (?:my|our|his|her|their) minds?|plans? (?:has|have) changed|instead of|no longer|rescheduled|postponed|pushed back|called off|cancell?ed|brought forward|(?:is|are|was|were|has been|have been) (?:now )?(?:moved|shifted|switched|replaced|delayed)|not \w+ any ?more|after all)\b",
    ),
    (
        FactKind::Change,
        2,
        r"\b(?:rather than|switch(?:ed|ing)? (?:to|from|over)|moved (?:to|from)|dropp(?:ed|ing)|swap(?:ped|ping)?|from now on|used to)\b|\binstead\b",
    ),
    (
        FactKind::Commitment,
        3,
        r"\b(?:I|we)(?:'ll| will| shall|'m going to| am going to|'re going to| are going to| promise| promised| commit| guarantee| undertake| can have)\b",
    ),
    (
        FactKind::Commitment,
        2,
        r"\b(?:promised|committed|guaranteed|undertook|volunteered|offered) (?:to|that|us|me)\b|\bsaid (?:he|she|they)(?: would| will|'d|'ll)\b|^[A-Z]\w+ (?:will|is going to|'ll)\b|\b[Bb]y (?:[Mm]onday|[Tt]uesday|[Ww]ednesday|[Tt]hursday|[Ff]riday|[Ss]aturday|[Ss]unday|tomorrow|tonight|noon|next \w+|the end|end of)\b",
    ),
    (
        FactKind::Decision,
        3,
        r"\b(?:we|I|they|he|she|the (?:team|board|group|client|committee|council))(?:'ve| have|'re| are| has|'m| am)? (?:all |both |finally |now |then )?(?:decid(?:ed|ing)|chose|chosen|went (?:with|for)|go(?:ing)? (?:with|for)|settl(?:ed|ing) on|picked|picking|opted|agreed|sticking|stick with|stay(?:ing)? with|selected|approved|rejected|concluded|voted|ruled out|resolved)\b",
    ),
    (
        FactKind::Decision,
        3,
        r"^(?:went (?:with|for)|going (?:with|for)|decided|agreed|settled on|picked|chose|let's|let us|decision|we go with|it's settled|final call|it's final|that's settled)\b",
    ),
    (
        FactKind::Decision,
        2,
        r"\b(?:(?:was|were|is|are|been) (?:decided|chosen|approved|rejected|agreed|selected)|the decision|the choice (?:is|was|fell)|undecided)\b",
    ),
    (FactKind::OpenDecision, 2, r"\?\W*$"),
    (
        FactKind::OpenDecision,
        3,
        r"\b(?:undecided|to be decided|tbd|tbc|to be seen|still open|open (?:question|decision|point|issue)|remains open|(?:still )?pending|awaiting|waiting (?:for|on)|not (?:yet )?(?:decided|agreed|confirmed|settled|clear)|unclear|up in the air|(?:not sure|unsure|don't know|do not know|no idea|need to (?:decide|find out|figure out|know|ask)|have to decide|who knows|wonder(?:ing)?) (?:yet )?(?:if|whether|who|what|how|when|where|which|why))\b",
    ),
    (
        FactKind::Reason,
        3,
        r"\b(?:that's why|that is why|which is why|the reason (?:is|was|why|for)|for that reason)\b|^(?:because|therefore|hence|owing to|due to|on account of|since (?:we|they|it|the|he|she|I|you|there|our))\b",
    ),
    (
        FactKind::Reason,
        2,
        r"\b(?:because|due to|owing to|so that|as a result|hence|therefore|thanks to|on account of|given that|seeing that|in order to)\b|, (?:since|as|so) (?:we|they|it|the|he|she|I|you|there|our)\b",
    ),
    // German
    (
        FactKind::Constraint,
        3,
        r"^(?:nicht|nie|niemals|auf keinen fall|unter keinen umständen|keinesfalls|keine? \w+ (?:vor|ohne|an|nach|in|für|mehr)|nur|immer|unbedingt|achte darauf|achten sie darauf|stell sicher|stellen sie sicher|sorg dafür|finger weg|lass (?:die|den|das|dem|es|ihn|alles|bitte)|lassen sie (?:die|den|das|es|ihn|alles|bitte)|niemand|nichts|vermeide)\b",
    ),
    (
        FactKind::Constraint,
        3,
        r"\b(?:darf|dürfen|darfst|soll|sollen|sollst|sollte|sollten|muss|müssen|kann|können)\b[^.?!]{0,80}\b(?:nicht|kein\w*|nie|niemals|niemandem?)\b|\bauf keinen Fall|\bunter keinen Umständen|\bkeinesfalls|\b(?:ist|sind) nicht \w*zu\w+en\b|\bverboten\b|\buntersagt\b|\bnicht (?:erlaubt|gestattet|zulässig)",
    ),
    (
        FactKind::Constraint,
        2,
        r"\b(?:muss|müssen|musst|darf|dürfen|soll|sollen|sollte|höchstens|mindestens|spätestens|frühestens|will nicht|wollen nicht|möchte nicht|möchten nicht|ist erforderlich|sind erforderlich|begrenzt auf|es sei denn|nur (?:wenn|mit|nach|für|noch|bei|durch)|erst (?:wenn|nach|ab|mit)|ohne (?:\w+ ){0,2}(?:Zustimmung|Erlaubnis|Freigabe|Rücksprache))\b",
    ),
    (
        FactKind::Flag,
        3,
        r"^(?:achtung|vorsicht|warnung|obacht|aufpassen|aufgepasst|pass auf|passt auf|passen sie auf|hinweis|wichtig|zur info|zur warnung|denk d(?:a)?ran|denkt d(?:a)?ran|denken sie daran|bedenke|nicht vergessen|kleine warnung|nur damit)\b",
    ),
    (
        FactKind::Flag,
        2,
        r"\b(?:Achtung|Vorsicht|vorsichtig|Warnung|warnt\w*|aufpassen|Risiko|Risiken|riskant|Gefahr|gefährlich|droht|drohen|sonst|andernfalls|ansonsten|könnte|markiert|Bedenken|heikel)\b",
    ),
    (
        FactKind::Change,
        3,
        r"^(?:planänderung|eigentlich|stattdessen|doch nicht|neuer plan|korrektur|kommando zurück|vergiss (?:das|was|den|die)|vergessen sie|ab sofort|entgegen|anders als)\b",
    ),
    (
        FactKind::Change,
        3,
        r"\b(?:Planänderung|stattdessen|doch nicht|nicht mehr|anstatt|anstelle|statt (?:am|im|in|mit|wie|des|der|auf|nach|zu)|verschoben|vorverlegt|verlegt|umgeplant|abgesagt|gestrichen|umentschieden|doch lieber|ab sofort|entfällt|fällt aus)\b",
    ),
    (
        FactKind::Change,
        2,
        r"\b(?:statt|wechseln|gewechselt|umgestiegen|ersetzt|künftig|neuerdings)\b",
    ),
    (
        FactKind::Commitment,
        3,
        r"\b(?:ich|wir) (?:werden?|schicken?|melden?|rufen?|liefern?|kümmern?|übernehmen?|sorgen?|prüfen?|kommen?|bringen?|geben?|verspreche|versprechen|sagen? zu|garantieren?|erledigen?|reichen?|bereiten?|besorgen?|klären?)\b|\b(?:werde|schicke|melde|rufe|kümmere|übernehme|verspreche|erledige|besorge|kläre) ich\b|\b(?:werden|schicken|melden|kümmern|übernehmen|liefern) wir\b",
    ),
    (
        FactKind::Commitment,
        2,
        r"\b(?:versprochen|verspricht|versprach|zugesagt|sagte zu|garantiert|zugesichert|hat gesagt, (?:er|sie)|sagte, (?:er|sie))\b|\b(?:morgen (?:früh|Abend|Mittag|Nachmittag)|übermorgen|nächste Woche)\b|\bbis (?:spätestens )?(?:Montag|Dienstag|Mittwoch|Donnerstag|Freitag|Samstag|Sonntag|morgen|heute|nächste\w*|Ende|zum|Mittag)\b",
    ),
    (
        FactKind::Decision,
        3,
        r"\b(?:wir|ich|sie|er|man|Team|Vorstand|Kunde|Kundin|Ausschuss|Rat|Gruppe) (?:haben|habe|hat|nehmen|nimmt|nehme|bleiben|bleibt|bleibe|wählen|wählt|entscheiden|gehen mit|machen es|setzen auf|einigten)\b[^.?!]*(?:entschieden|beschlossen|geeinigt|gewählt|genommen|vereinbart|festgelegt|ausgesucht|genehmigt|abgelehnt|dabei|\bbei\b|nehmen|\bauf\b)|\bhaben wir uns\b|\bhaben uns (?:für|gegen|auf)\b|\bnehmen wir\b|\bbleibt es bei\b|\bdabei bleibt es|\b(?:ist|sind) es [^.?!]* geworden\b",
    ),
    (
        FactKind::Decision,
        3,
        r"^(?:entschieden|beschlossen|vereinbart|entscheidung|es bleibt bei|genommen wird|lasst uns|lass uns|wir nehmen|wir bleiben|es steht fest|fest steht)\b",
    ),
    (
        FactKind::Decision,
        2,
        r"\b(?:entschieden|beschlossen|vereinbart|genehmigt|abgelehnt|einigten|geeinigt|Entscheidung|die Wahl fiel|fiel die Wahl)\b",
    ),
    (
        FactKind::OpenDecision,
        3,
        r"\b(?:noch offen|bleibt offen|offene[rn]? (?:Frage|Entscheidung|Punkt)|ausstehend|steht (?:noch )?aus|(?:warte|warten) (?:noch )?auf|herausfinden|noch nicht (?:\w+ )?(?:entschieden|vereinbart|bestätigt|klar|geklärt|fest)|unklar|ungeklärt|fraglich|(?:weiß|wissen|wissen wir|klären|fragen|entscheiden)[^.?!]{0,30}, (?:ob|wer|was|wie|wann|wo|welche\w*|warum))\b|^(?:ob|wer|wann|wie|was) [^?]*(?:offen|unklar|fest|entscheiden)",
    ),
    (
        FactKind::Reason,
        3,
        r"^(?:weil|deshalb|deswegen|daher|darum|der grund|wegen|aufgrund|da (?:der|die|das|wir|es|ich|sie|er|ein|eine))\b|\bder Grund (?:ist|war|dafür)\b",
    ),
    (
        FactKind::Reason,
        2,
        r"\b(?:weil|deshalb|deswegen|daher|darum|sodass|so dass|aufgrund|wegen|nämlich)\b|, (?:da|denn|damit) ",
    ),
    // Conditions and their consequences, in all three languages.
    (FactKind::Flag, 2, r"^(?:if|wenn|falls) [^,]+, (?:\w+ ){1,3}|^(?:如果|要是|一旦)|的话"),
    // Chinese
    (
        FactKind::Constraint,
        3,
        r"不要|不让|别(?:再|让|把|用|去|给|在|跟|动|提|碰|发|说|忘|联系|告诉|碰|打)|请勿|切勿|严禁|禁止|不得|不许|不准|不可以?|千万|务必|一定要|勿|不应该?|不该|避免|绝不|不能(?:超过|用|给|在|让|把|提|发|告诉|外传|改|动|碰)",
    ),
    (
        FactKind::Constraint,
        2,
        r"必须|只能|只有|不超过|至少|最多|限于|除非|未经|须|得先|才能|之前不|不能|不用|不必",
    ),
    (
        FactKind::Flag,
        3,
        r"^\W*(?:注意|小心|当心|警告|提醒|留意|请注意|提示|谨防|温馨提示|先说一声)",
    ),
    (
        FactKind::Flag,
        2,
        r"注意|小心|当心|警告|警示|提醒|留意|谨防|风险|危险|标记|否则|不然|恐怕|万一|容易(?:坏|丢|漏|断|卡|出错)|可能会|也许会|会(?:坏|断|漏|爆|烧|卡住)",
    ),
    (
        FactKind::Change,
        3,
        r"想了想|其实|改(?:为|成|到|期|用|在|由|去|天|坐|走)|不再|取消|推迟|延期|提前到|换成|换到|变更|计划有变|计划变|改变主意|改主意|原计划|原定|作罢|重新安排|先不|不了",
    ),
    (FactKind::Change, 2, r"而不是|改变|换|调整|今后|从现在起|以后就"),
    (
        FactKind::Commitment,
        3,
        r"我们?(?:会|将|来|负责|保证|答应|承诺|明天|今晚|稍后|马上|下周|周[一二三四五六日])|(?:保证|答应|承诺|说好)(?:了|在|会|过|给)?",
    ),
    (
        FactKind::Commitment,
        2,
        r"(?:会|将)(?:在|于|把|给|亲自)|(?:周|星期)[一二三四五六日天](?:之?前|以前)|说[他她](?:会|要|来|去)|明天(?:早上|上午|下午|晚上)|月底前|明天(?:之?前|中午)",
    ),
    (
        FactKind::Decision,
        3,
        r"决定|选[^择项手举]{1,6}(?:当|为|做)|还是(?:用|选|买|走|坐)|选定|敲定|定下|拍板|商定|我们(?:选|用|就用|还是|改用|采用|同意|确定|定了)|最(?:后|终)(?:选|定|决定|用|还是)|选(?:了|择了?)|就这么定|定了",
    ),
    (FactKind::Decision, 2, r"同意|批准|拒绝|采用|确定"),
    (
        FactKind::OpenDecision,
        3,
        r"待定|未决|待决定|待确认|尚待|还得(?:弄清|问|定)|在等|还没(?:定|有?决定|确定|想好|说好|谈)|尚未|未定|没想好|不确定|不清楚|不知道(?:是否|谁|怎么|什么|要不要|该)|要不要|是否",
    ),
    (FactKind::OpenDecision, 2, r"[？?]\W*$|吗[。！]?$|谁来|怎么办"),
    (FactKind::Reason, 3, r"^\W*(?:因为|由于|之所以|所以|因此)|原因(?:是|在于)|这就是为什么"),
    (FactKind::Reason, 2, r"因为|由于|因此|所以|为了|以免|免得|既然|因而|以便"),
];

/// Words of direct address: the speaker or the listener.
const SAID: &str = r"(?i)\b(?:we|you|us|our|your|let's|please|me|my|wir|du|ihr|uns|euch|bitte|dein\w*|euer|ich)\b|我们?|你们?|您|咱们|请|大家";

static FORM_SET: LazyLock<RegexSet> = LazyLock::new(|| {
    let patterns = FORMS.iter().map(|(_, _, form)| {
        // A form that begins a sentence may stand behind a word that joins it to the one before.
        match form.strip_prefix('^') {
            Some(rest) if !form.contains("[A-Z]") && !rest.starts_with(r"\W") => {
                format!("{START}{rest}")
            }
            // Names are told by their capitals.
            _ if form.contains("[A-Z]") => (*form).to_owned(),
            _ => format!("(?i){form}"),
        }
    });
    RegexSet::new(patterns).unwrap_or_else(|_| RegexSet::empty())
});

static SAID_FORM: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SAID).ok());

/// Words that cannot begin a German order even if a negation follows: pronouns, question words and verbs of narration.
const NO_ORDER: &str = " der die das den dem des ein eine einen einem einer eines ich wir er sie es ihr man wer was wo wann wie warum welche welcher welches im in am an auf aus bei mit nach von zu zum zur für über unter vor durch gegen ohne um wenn ob weil dass da als obwohl aber und oder denn doch so dann noch nur auch schon hier dort jetzt heute gestern morgen ist sind war waren wird werden hat haben hatte hatten kann können konnte muss müssen soll sollen darf dürfen will wollen mag alle viele einige diese dieser dieses diesen mein meine dein deine sein seine unser unsere ihre laut trotz seit bis während wegen beide jede jeder jedes kein keine ";

/// An order that is negated, in German: a verb, then whom or what, then the negation.
static NEGATED_ORDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let whom = r"Sie|bitte|den|die|das|dem|der|ein\w*|mir|uns|ihm|ihr|ihnen|mich|mein\w*|dein\w*|unser\w*|(?-i:[A-ZÄÖÜ]\w+)";
    let not = r"nicht|kein\w*|nie|niemals|niemandem?";
    let start = r"^\W*(?:(?:bitte|aber|und|also),? )?(\w+)";
    Regex::new(&format!(r"(?i){start} (?:(?:{whom})\b[^?]*\b)?(?:{not})\b")).ok()
});

fn is_negated_order(sentence: &str) -> bool {
    if sentence.ends_with('?') {
        return false;
    }
    let found = NEGATED_ORDER.as_ref().and_then(|form| form.captures(sentence));
    let verb = found.and_then(|found| found.get(1));
    verb.is_some_and(|verb| !NO_ORDER.contains(&format!(" {} ", verb.as_str().to_lowercase())))
}

/// Classifies a sentence by its most certain form. Between forms of equal certainty the kind that the receiver needs most wins.
#[must_use]
pub fn statement(sentence: &str) -> Option<Statement> {
    let order = is_negated_order(sentence).then_some((3, FactKind::Constraint));
    let best = FORM_SET
        .matches(sentence)
        .into_iter()
        .map(|at| (FORMS[at].1, FORMS[at].0))
        .chain(order)
        .min_by_key(|(strength, kind)| (std::cmp::Reverse(*strength), *kind))?;
    let (mut strength, kind) = best;
    let said = SAID_FORM.as_ref().is_some_and(|said| said.is_match(sentence));
    if sentence.len() > LONG || !said && sentence.len() > LONG / 2 {
        strength -= 1;
    } else if strength == 2 && (sentence.len() <= SHORT || said && sentence.len() <= LONG / 2) {
        strength = 3;
    }
    (strength > 0).then_some(Statement { kind, strength })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: each class in ordinary words, in three languages.
    #[test]
    fn statements_are_told_by_their_structure() {
        use FactKind::{Change, Commitment, Constraint, Decision, Flag, OpenDecision, Reason};
        assert_eq!(FORM_SET.len(), FORMS.len());
        for (sentence, kind) in [
            ("Do not contact Meyer.", Constraint),
            ("The draft should never leave the house.", Constraint),
            ("Bitte ruf Meyer nicht an.", Constraint),
            ("Meyer darf davon nichts hören, das soll nicht nach außen.", Constraint),
            ("不要联系迈耶。", Constraint),
            ("Heads-up: the lift is slow.", Flag),
            ("Vorsicht, die Leiter wackelt.", Flag),
            ("小心，电梯很慢。", Flag),
            ("Change of plan: we meet at the lake.", Change),
            ("Das Treffen ist auf Mai verschoben.", Change),
            ("会议改到湖边。", Change),
            ("I'll bring the keys.", Commitment),
            ("Ich bringe die Schlüssel mit.", Commitment),
            ("我会带钥匙。", Commitment),
            ("Went with oak because pine is soft.", Decision),
            ("Wir haben uns für Eiche entschieden.", Decision),
            ("我们还是用橡木。", Decision),
            ("Not sure who pays for the boat.", OpenDecision),
            ("Wer das Boot zahlt, ist noch unklar.", OpenDecision),
            ("谁付船费还没定。", OpenDecision),
            ("That's why the gate is green.", Reason),
            ("Deshalb ist das Tor grün.", Reason),
            ("因为松木太软。", Reason),
        ] {
            let stated = statement(sentence);
            assert_eq!(stated.map(|one| one.kind), Some(kind), "{sentence}: {stated:?}");
        }
        for sentence in ["The weather was fine.", "Die Sonne schien auf das Dach.", "天气很好。"]
        {
            assert_eq!(statement(sentence), None, "{sentence}");
        }
    }
}
