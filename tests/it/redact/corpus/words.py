"""Words for the corpus. None is, or has in it, one that the rules take as a sign of a made-up secret."""

NOUNS = """river stone cloud garden window table engine market forest harbor ledger orchid pepper rocket saddle
timber tunnel valley walnut yellow copper dragon falcon glacier hammer island jungle kettle lantern marble
needle oyster parcel quartz ribbon silver thunder umbrella velvet whistle anchor basket candle desert ember
fabric gadget helmet insect jacket kernel ladder magnet noodle orange packet queue radar signal ticket
upload vector widget zebra account batch cache device event folder group handler index journal keyboard
layer message network object pipeline query record schema thread update volume worker archive bridge
cluster daemon epoch fragment gateway header image job key lock metric node option policy quota region
server task unit value watcher yield zone""".split()

VERBS = """read write send build load store parse check open close merge split start stop update delete
create fetch render compile deploy restore monitor schedule resolve validate encode decode publish
subscribe allocate release migrate refresh rotate revoke authorize inspect measure compress stream""".split()

ADJECTIVES = """quick slow local remote empty full stable fresh stale nested public private internal
external shared global static dynamic optional required cached pending active broken valid invalid
encrypted signed anonymous temporary permanent bounded""".split()

PROSE = """the a of and to in that it is was for on with as at by from this they we can has have not but
or an are be which when where will would there their more other about into than then some its only also
after before between because through during without within under over each every any most such these those
time people system service team user customer request response change release question answer problem
reason result outcome month week morning evening number letter paper music water house street city
country world history science language story idea point way part place case fact hand eye week company
program government side kind head home room mother area money study book job word business issue group
token password secret key credential login session account header certificate permission""".split()

LANGUAGES = ["rust", "python", "go", "java", "kotlin", "swift", "ruby", "php", "scala", "elixir", "haskell"]
PEOPLE = ["ana", "bjorn", "chen", "deepa", "elif", "farid", "greta", "hiro", "ines", "jonas", "kemal", "lena"]
TLDS = ["com", "org", "io", "dev", "net", "test", "co.uk", "de"]
