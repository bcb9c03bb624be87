"""Closed-class words of English, and the names of the categories that group contents are labelled with."""

DETERMINER = "determiner"
PREPOSITION = "preposition"
CONJUNCTION = "conjunction"
PRONOUN = "pronoun"
AUXILIARY = "auxiliary"
PARTICLE = "particle"
NAME = "name"
CONTENT = "content word"
NOUN, VERB, ADJECTIVE, ADVERB = "noun", "verb", "adjective", "adverb"
IDENTIFIER = "identifier"
KEYWORD = "keyword"
NUMBER = "number"
PUNCTUATION = "punctuation"
SPACE = "space"
LINE_BREAK = "line break"
PIECE = "word piece"
NO_TEXT = "no text"

CONTENT_CATEGORIES = frozenset({NAME, CONTENT, NOUN, VERB, ADJECTIVE, ADVERB, IDENTIFIER})

ENGLISH = {
    DETERMINER: (
        "the a an this these those my your his its our their whose every each either neither some any no both all "
        "half such another what whatever which whichever many much few several enough "
        "other more most less own"
    ),
    PREPOSITION: (
        "of in to for with on at from by about as into like through after over between out against during without "
        "before under around among upon toward towards within along across behind beyond near above below beneath "
        "beside besides despite except inside onto outside past since till until up down off per amid amidst "
        "amongst concerning regarding unto via opposite throughout underneath aboard alongside atop"
    ),
    CONJUNCTION: (
        "and but or nor yet so if because although though while whereas unless lest whether than that when "
        "whenever where wherever how why once provided"
    ),
    PRONOUN: (
        "i me mine myself you yours yourself yourselves thou thee thy thine ye he him himself she her hers "
        "herself it itself we us ours ourselves they them theirs themselves who whom whoever one oneself somebody "
        "someone something anybody anyone anything everybody everyone everything nobody none nothing"
    ),
    AUXILIARY: (
        "am is are was were be been being have has had having do does did doing done will would shall should can "
        "could may might must ought cannot ain aren couldn didn doesn don hadn hasn haven isn mustn shouldn wasn "
        "weren wouldn 'm 're 've 'll 'd ’m ’re ’ve ’ll ’d"
    ),
    NUMBER: (
        "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand million "
        "dozen first second third fourth fifth"
    ),
    PARTICLE: "not n't 't ’t 's ’s yes oh ah o please there here too very also just even only then now never",
}

CATEGORY_OF = {word: category for category, words in ENGLISH.items() for word in words.split()}
"""English closed-class word, lower case -> category; each word stands in one list, the class it most often has."""

UNIVERSAL = {
    "DET": DETERMINER, "ADP": PREPOSITION, "CCONJ": CONJUNCTION, "SCONJ": CONJUNCTION, "PRON": PRONOUN,
    "AUX": AUXILIARY, "PART": PARTICLE, "INTJ": PARTICLE, "PROPN": NAME, "NOUN": NOUN, "VERB": VERB, "ADJ": ADJECTIVE,
    "ADV": ADVERB, "NUM": NUMBER,
}  # fmt: skip
"""Universal part-of-speech tag (spaCy's `pos_`) -> category."""
