"""What secrets of each rule look like, told apart from the rules: by their makers' documents.

A template's `{class:length}` is filled with random characters (see `secret.py`); `⁞` stands where a
scanner of source hosts must not see a whole secret; `⟦…⟧` is what goes, all of it if there are none.
"""

FORMATS = """
aws-access-key-id AKIA⁞{b32:16} | ASIA⁞{b32:16}
aws-secret-access-key aws_secret_access_key = ⟦{b64s:40}⟧ | "SecretAccessKey": "⟦{b64s:40}⟧" | AWS_SECRET_ACCESS_KEY=⟦{b64s:40}⟧ | secretAccessKey: '⟦{b64s:40}⟧'
aws-session-token IQoJb3JpZ2luX2Vj⁞{b64:300-400}== | FwoGZXIvYXdz⁞{b64:250-320}=
aws-bedrock-key ABSK⁞{b64:128}
aws-bedrock-session-key bedrock-api-key-⁞YmVkcm9jay5hbWF6b25hd3MuY29t{b64:200-300}=
google-api-key AIza⁞Sy{b64u:33}
google-auth-key AQ.⁞Ab8{b64u:50}
google-oauth-secret GOCSPX-⁞{b64u:28}
google-access-token ya29.⁞a0{b64u:160-220} | ya29.⁞c.b0A{b64u:180}
google-refresh-token 1//0⁞{b62:1}{b64u:60-98}
firebase-server-key AAAA⁞{b64u:7}:APA91b{b64u:134}
azure-storage-key AccountKey=⟦⁞{b64s:86}==⟧ | AccountName=prod{lo:5};AccountKey=⟦⁞{b64s:86}==⟧;EndpointSuffix=core.windows.net | AccountKey=⟦⁞{b64s:43}=⟧
azure-shared-access-key Endpoint=sb://{word}.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=⟦⁞{b64s:43}=⟧ | SharedAccessKey=⟦⁞{b64s:43}=⟧
azure-sas-signature https://{word}.blob.core.windows.net/c/f?sv=2024-11-04&sp=r&sig=⟦⁞{b64x:43}%3D⟧ | ?sv=2023-01-03&se=2030-01-01&sig=⟦⁞{b64x:43}%3D⟧&spr=https | ?sig=⟦⁞{b64x:43}%3D⟧&sr=b
azure-client-secret {b62:3}8⟦Q~⁞{azure:34}⟧ | {b62:3}7⟦Q~⁞{azure:31}⟧
azure-app-config-secret Endpoint=https://{word}.azconfig.io;Id={b62:4};Secret=⟦⁞{b64s:43}=⟧ | ;Secret=⟦⁞{b64s:84}⟧
azure-aks-token aks-⁞{b62:32} | aks-⁞{lo:6}-{b62:28} | aks-⁞{b62:24}
digitalocean-token dop_v1_⁞{hex:64}
digitalocean-oauth-token doo_v1_⁞{hex:64}
digitalocean-refresh-token dor_v1_⁞{hex:64}
alibaba-access-key-id LTAI⁞5t{b62:18} | LTAI⁞4{b62:15}
tencent-secret-id AKID⁞{b62:32}
yandex-api-key AQVN⁞{b64u:36}
yandex-iam-token t1.⁞{b64u:120-200}.{b64u:86}
yandex-oauth-token y0_⁞{b64u:55} | y0_⁞AgAAAA{b64u:50}
scaleway-access-key SCW⁞{up:17}
fly-token fm2_⁞{b64:120}== | fo1_⁞{b64u:43} | fm1r_⁞{b64:100},fm2_{b64:100}=
heroku-key HRKU-⁞{uuid} | HRKU-⁞AA{b64u:58}
vercel-token vcp_⁞{b62:56} | vck_⁞{b62:56} | vca_⁞{b62:56} | vcr_⁞{b62:56} | vci_⁞{b62:56}
netlify-token nfp_⁞{b62:36} | nfc_⁞{b62:36} | nfo_⁞{b62:36}
render-key rnd_⁞{b62:32}
cloudflare-user-token cfut_⁞{b62:48}
cloudflare-account-token cfat_⁞{b62:48}
cloudflare-global-key cfk_⁞{b62:48}
cloudflare-origin-ca-key v1.0-⁞{hex:24}-{hex:146}
tailscale-key tskey-auth-⁞k{b62:10}CNTRL-{b62:32} | tskey-api-⁞k{b62:10}CNTRL-{b62:32} | tskey-client-⁞k{b62:11}CNTRL-{b62:33}
deno-deploy-token ddp_⁞{b62:36} | ddo_⁞{b62:36}
upcloud-token ucat_⁞{up:26}
aiven-password AVNS_⁞{b64u:19}
openai-project-key sk-proj-⁞{b64u:156} | sk-proj-⁞{b62:48} | sk-proj-⁞{b64u:74}T3BlbkFJ{b64u:74}
openai-service-key sk-svcacct-⁞{b64u:156} | sk-svcacct-⁞{b64u:58}T3BlbkFJ{b64u:58}
openai-admin-key sk-admin-⁞{b64u:124}
anthropic-admin-key sk-ant-admin01-⁞{b64u:93}AA
anthropic-oauth-token sk-ant-oat01-⁞{b64u:93}AA | sk-ant-ort01-⁞{b64u:93}AA | sk-ant-sid01-⁞{b64u:86}-{b64u:6}AA
anthropic-key sk-ant-api03-⁞{b64u:93}AA | sk-ant-api03-⁞{b64u:93}AA
openrouter-key sk-or-v1-⁞{hex:64}
langfuse-secret-key sk-lf-⁞{uuid}
helicone-key sk-helicone-⁞{lo:7}-{lo:7}-{lo:7}-{lo:7} | sk-helicone-⁞eu-{lo:7}-{lo:7}-{lo:7}-{lo:7}
deepseek-key sk-⁞{hex:32}
openai-key sk-⁞{b62:48} | sk-⁞{b62:20}T3BlbkFJ{b62:20} | sk-⁞{b62:32} | sk-⁞{lo:6}-{b62:32}
cerebras-key csk-⁞{lo:48}
groq-key gsk_⁞{b62:52}
huggingface-token hf_⁞{letters:34}
huggingface-org-token api_org_⁞{letters:34}
perplexity-key pplx-⁞{b62:48}
replicate-token r8_⁞{b62:37}
xai-key xai-⁞{b62:80}
together-key tgp_v1_⁞{b64u:43}
fireworks-key fw_⁞{b62:22} | fw_⁞{b62:24}
nvidia-key nvapi-⁞{b64u:64}
pinecone-key pcsk_⁞{b62:5}_{b62:63} | pcsk_⁞{b62:6}_{b62:63}
langsmith-key lsv2_pt_⁞{hex:32}_{hex:10} | lsv2_sk_⁞{hex:32}_{hex:10}
elevenlabs-key sk_⁞{hex:48}
tavily-key tvly-⁞{b62:32} | tvly-dev-⁞{b62:32}
e2b-key e2b_⁞{hex:40}
voyage-key pa-⁞{b64u:43}
jina-key jina_⁞{hex:32}{b64u:28}
firecrawl-key fc-⁞{hex:32}
apify-token apify_api_⁞{b62:36}
wandb-key wandb_v1_⁞{b62:27}_{b62:49}
runpod-key rpa_⁞{up:42} | rpa_⁞{up:40}{lo:6}
anyscale-key esecret_⁞{lo:26}
modal-token-secret as-⁞{b62:22}
mem0-key m0-⁞{b62:40}
llamacloud-key llx-⁞{b62:48}
browserbase-key bb_live_⁞{b64u:27}
cartesia-key sk_car_⁞{b62:22}
cursor-key key_⁞{hex:64} | crsr_⁞{hex:64}
github-token ghp_⁞{b62:36}
github-oauth-token gho_⁞{b62:36}
github-user-token ghu_⁞{b62:36}
github-server-token ghs_⁞{b62:36} | ghs_⁞{d:6}_eyJhbGciOiJSUzI1NiJ9.eyJ{b64u:120}.{b64u:342}
github-refresh-token ghr_⁞{b62:76}
github-fine-grained-token github_pat_⁞{b62:22}_{b62:59}
gitlab-token glpat-⁞{b64u:20} | glpat-⁞{b64u:27}.01.{lo:9} | glpat-⁞{b64u:60}.1a.{lo:9}
gitlab-deploy-token gldt-⁞{b64u:20}
gitlab-runner-token glrt-⁞{b64u:20} | glrt-t1_⁞{b64u:27}.01.{lo:9} | glrtr-⁞{b64u:20}
gitlab-trigger-token glptt-⁞{hex:40}
gitlab-feed-token glft-⁞{b64u:20}
gitlab-mail-token glimt-⁞{lo:25}
gitlab-agent-token glagent-⁞{b64u:50}
gitlab-job-token glcbt-⁞64_{b64u:20} | glcbt-⁞{hex:2}_{b64u:20}
gitlab-oauth-secret gloas-⁞{hex:64}
gitlab-scim-token glsoat-⁞{b64u:20}
gitlab-feature-flag-token glffct-⁞{b64u:20}
gitlab-registration-token GR1348941⁞{b64u:20}
bitbucket-app-password ATBB⁞{b62:24}{HEX:8}
bitbucket-access-token ATCTT3⁞xFfGN0{b64u:170}={HEX:8}
atlassian-api-token ATATT3⁞xFfGF0{b64u:170}={HEX:8} | ATSTT3⁞xFfGF0{b64u:170}={HEX:8}
npm-token npm_⁞{b62:36}
npmrc-auth //registry.{word}.dev/:_authToken=⟦⁞{b62:40}⟧ | //npm.{word}.io/:_auth=⟦⁞{b64s:28}⟧ | _authToken=⟦⁞{uuid}⟧
pypi-token pypi-AgE⁞IcHlwaS5vcmc{b64u:130-160}
crates-io-token cio⁞{b62:32}
rubygems-key rubygems_⁞{hex:48}
nuget-key oy2⁞{lo:43}
docker-token dckr_pat_⁞{b64u:27}
docker-org-token dckr_oat_⁞{b64u:32}
docker-config-auth {"auths":{"registry.{word}.io":{"auth": "⟦⁞{userpass}⟧"}}} | "auth":"⟦⁞{userpass}⟧"
artifactory-key AKCp⁞8{b62:68}
artifactory-reference-token cmVmdGtu⁞OjAxOj{b62:50}
terraform-token {b62:14}⁞.atlasv1.⟦{b64u:67}⟧
vault-service-token hvs.⁞{b62:24} | hvs.⁞CAESI{b64u:90}
vault-batch-token hvb.⁞AAAAAQ{b64u:130}
vault-recovery-token hvr.⁞{b62:24}
doppler-token dp.pt.⁞{b62:43} | dp.st.⁞prd.{b62:43} | dp.sa.⁞{b62:43} | dp.ct.⁞{b62:43} | dp.scim.⁞{b62:43}
pulumi-token pul-⁞{hex:40}
databricks-token dapi⁞{hex:32} | dapi⁞{hex:32}-2
databricks-oauth-secret dose⁞{hex:32}
prefect-key pnu_⁞{b62:36}
onepassword-service-token ops_⁞eyJ{b64u:300-360}
onepassword-secret-key A3-⁞{up:6}-{up:6}-{up:5}-{up:5}-{up:5}-{up:5}
infracost-key ico-⁞{b62:32}
buildkite-token bkua_⁞{hex:40} | bkct_⁞{b62:48}
circleci-token CCIPAT_⁞{b62:22}_{hex:40} | CCIPRJ_⁞{b62:22}_{hex:40}
segment-token sgp_⁞{b62:64}
sourcegraph-token sgp_⁞{hex:16}_{hex:40} | sgp_⁞local_{hex:40} | sgp_⁞{hex:40}
postman-key PMAK-⁞{hex:24}-{hex:34}
postman-collection-key PMAT-⁞{up:26}
sonarqube-token squ_⁞{hex:40} | sqp_⁞{hex:40} | sqa_⁞{hex:40}
snyk-token snyk_uat.⁞{hex:8}.{b64u:80}.{b64u:43}
clojars-token CLOJARS_⁞{hex:60}
harness-token pat.⁞{b64u:22}.{hex:24}.{b62:20} | sat.⁞{b64u:22}.{hex:24}.{b62:20}
octopus-key API-⁞{up:31} | API-⁞{up:26}
launchdarkly-key sdk-⁞{uuid} | api-⁞{uuid}
configcat-key configcat-sdk-1/⁞{b64u:22}/{b64u:22}
statsig-key secret-⁞{b62:43}
stripe-live-key sk_live_⁞{b62:24} | sk_live_⁞51{b62:97} | sk_live_⁞{hex:40}
stripe-restricted-key rk_live_⁞51{b62:97}
stripe-test-key sk_test_⁞51{b62:97} | sk_test_⁞{b62:24} | rk_test_⁞{b62:24}
stripe-webhook-secret whsec_⁞{b62:32} | whsec_⁞{b64s:43}=
square-access-token sq0atp-⁞{b64u:22} | EAAA⁞{b64u:60}
square-oauth-secret sq0csp-⁞{b64u:43}
shopify-access-token shpat_⁞{hex:32}
shopify-custom-app-token shpca_⁞{hex:32}
shopify-private-app-token shppa_⁞{hex:32}
shopify-shared-secret shpss_⁞{hex:32}
braintree-access-token access_token$production$⁞{lo:16}${hex:32} | access_token$sandbox$⁞{lo:16}${hex:32}
adyen-key AQE⁞y{b64s:80}-{b64s:43}=-{b62:16}
flutterwave-key FLWSECK-⁞{hex:32}-X | FLWSECK_TEST-⁞{hex:32}-X | FLWSECK-⁞{hex:32}-{lo:13}-X
plaid-access-token access-production-⁞{uuid} | access-sandbox-⁞{uuid}
razorpay-key rzp_live_⁞{b62:14} | rzp_test_⁞{b62:14}
paddle-key pdl_live_apikey_⁞{lo:26}_{b62:22}_{b62:3} | pdl_sdbx_apikey_⁞{lo:26}_{b62:22}_{b62:3}
xendit-key xnd_production_⁞{b62:60} | xnd_development_⁞{b62:60}
midtrans-server-key Mid-server-⁞{b64u:24} | SB-Mid-server-⁞{b64u:24}
mercadopago-token APP_USR-⁞{d:16}-{d:6}-{hex:32}-{d:9} | TEST-⁞{d:16}-{d:6}-{hex:32}-{d:9}
gocardless-token live_⁞{b64u:40} | sandbox_⁞{b64u:40}
lob-key live_⁞{hex:35} | test_⁞{hex:35}
cashfree-key cfsk_ma_prod_⁞{hex:32}_{hex:8} | cfsk_ma_test_⁞{hex:32}_{hex:8}
easypost-key EZAK⁞{b62:54} | EZTK⁞{b62:54}
shippo-key shippo_live_⁞{hex:40} | shippo_test_⁞{hex:40}
duffel-token duffel_live_⁞{b64u:43} | duffel_test_⁞{b64u:43}
polar-token polar_oat_⁞{b62:40}
meta-access-token EAA⁞{b62:180}ZD | EAA⁞C{b62:120}
slack-bot-token xoxb-⁞{d:12}-{d:13}-{b62:24}
slack-user-token xoxp-⁞{d:12}-{d:12}-{d:13}-{hex:32}
slack-legacy-token xoxa-⁞2-{d:12}-{d:12}-{d:13}-{hex:32} | xoxr-⁞{d:12}-{d:12}-{b62:24} | xoxs-⁞{d:12}-{d:12}-{d:12}-{hex:32} | xoxc-⁞{d:12}-{d:12}-{d:13}-{hex:64}
slack-session-cookie xoxd-⁞{b64x:120}%3D%3D
slack-config-token xoxe.xoxp-⁞1-{b62:160} | xoxe-⁞1-{b62:140}
slack-app-token xapp-⁞1-A{up:10}-{d:13}-{hex:64}
slack-webhook https://hooks.slack.com/services/⟦T{up:10}/⁞B{up:10}/{b62:24}⟧ | https://hooks.slack.com/workflows/⟦T{up:8}/⁞A{up:10}/{d:18}/{b62:24}⟧
discord-bot-token {discord}⁞.{b64u:6}.{b64u:38} | {discord}⁞.G{b64u:5}.{b64u:27}
discord-webhook https://discord.com/api/webhooks/{d:18}/⟦⁞{b64u:68}⟧ | https://discordapp.com/api/webhooks/{d:19}/⟦⁞{b64u:68}⟧ | https://discord.com/api/v10/webhooks/{d:18}/⟦⁞{b64u:68}⟧
telegram-bot-token {d:10}:⟦AA⁞E{b64u:32}⟧ | https://api.telegram.org/bot{d:9}:⟦AA⁞H{b64u:32}⟧/getMe | bot{d:10}:⟦AA⁞F{b64u:32}⟧
teams-webhook https://{word}.webhook.office.com/webhookb2/⟦⁞{uuid}@{uuid}/IncomingWebhook/{hex:32}/{uuid}⟧
google-chat-webhook https://chat.googleapis.com/v1/spaces/{b64u:11}/messages?⟦key=AIza⁞Sy{b64u:33}&token={b64u:43}%3D⟧
twilio-key SK⁞{hex:32}
sendgrid-key SG.⁞{b64u:22}.{b64u:43}
mailgun-key key-⁞{hex:32}
mandrill-key md-⁞{b64u:22}
mailersend-token mlsn.⁞{hex:64}
resend-key re_⁞{b62:8}_{b62:24}
brevo-key xkeysib-⁞{hex:64}-{b62:16}
brevo-smtp-key xsmtpsib-⁞{hex:64}-{b62:16}
intercom-token dG9rO⁞{b64:55}=
linear-key lin_api_⁞{b62:40}
linear-oauth-token lin_oauth_⁞{hex:64}
notion-token ntn_⁞{d:11}{b62:35} | secret_⁞{b62:43}
airtable-token pat⁞{b62:14}.{hex:64}
asana-token 1/12⁞{d:14}:{hex:32} | 2/12{d:14}/⁞12{d:14}:{hex:32}
figma-token figd_⁞{b64u:40} | figu_⁞{b64u:40}
dropbox-token sl.⁞{b64u:135} | sl.u.⁞A{b64u:140}
typeform-token tfp_⁞{b62:44}_{b62:14}
hubspot-token pat-na1-⁞{uuid} | pat-eu1-⁞{uuid}
contentful-token CFPAT-⁞{b64u:43}
readme-key rdme_⁞{lo:70}
frameio-token fio-u-⁞{b64u:64}
trello-token ATTA⁞{hex:64}{HEX:8}
clickup-token pk_⁞{d:8}_{up:32}
klaviyo-key pk_⁞{hex:34}
close-key api_⁞{b62:22}.{b62:22}
onfido-token api_live.⁞{b64u:11}.{b64u:32} | api_sandbox.⁞{b64u:11}.{b64u:32} | api_live_us.⁞{b64u:11}.{b64u:32}
calcom-key cal_live_⁞{hex:32}
telnyx-key KEY⁞{HEX:32}_{b62:22}
onesignal-key os_v2_app_⁞{b32l:103} | os_v2_org_⁞{b32l:103}
nylas-key nyk_v0_⁞{b62:64}
stytch-secret secret-live-⁞{b64u:35}= | secret-test-⁞{b64u:35}=
persona-key persona_production_⁞{uuid} | persona_sandbox_⁞{uuid}
mapbox-secret-token sk.⁞eyJ1Ijoi{b64u:50}.{b64u:22}
zuplo-key zpka_⁞{lo:32}_{lo:8}
grafana-service-token glsa_⁞{b62:32}_{hex:8}
grafana-cloud-token glc_⁞eyJvIjoi{b64:110}==
grafana-api-key eyJrIjoi⁞{b64:84}=
newrelic-user-key NRAK-⁞{up:27}
newrelic-browser-key NRJS-⁞{hex:19}
newrelic-insights-key NRII-⁞{b64u:32} | NRIQ-⁞{b64u:32}
sentry-org-token sntrys_⁞eyJpYXQiOjE3{b64:120}=_{b64:43}
sentry-user-token sntryu_⁞{hex:64}
honeycomb-key hcaik_⁞01{lo:56} | hcxik_⁞01{lo:56} | hcamk_⁞01{lo:56}
dynatrace-token dt0c01.⁞{b32:24}.{b32:64} | dt0s16.⁞{b32:24}.{b32:64}
posthog-key phc_⁞{b62:43} | phx_⁞{b62:43}
axiom-token xaat-⁞{uuid} | xapt-⁞{uuid}
logfire-token pylf_v1_us_⁞{b62:43} | pylf_v1_eu_⁞{b62:43}
checkly-key cu_⁞{hex:32}
elastic-cloud-key essu_⁞{b64:80}==
postgres-url-password postgres://{word}:⟦⁞{password}⟧@{host}:5432/{word} | postgresql://{word}:⟦⁞{password}⟧@{host}/{word}?sslmode=require | postgresql+asyncpg://{word}:⟦⁞{password}⟧@{host}:6543/postgres | postgresql+psycopg2://{word}:⟦⁞{password}⟧@{host}/{word}
mysql-url-password mysql://{word}:⟦⁞{password}⟧@{host}:3306/{word} | mysql+pymysql://root:⟦⁞{password}⟧@{host}/{word}?charset=utf8mb4 | mariadb://{word}:⟦⁞{password}⟧@{host}:3307/{word}
mongodb-url-password mongodb://{word}:⟦⁞{password}⟧@{host}:27017/admin | mongodb+srv://{word}:⟦⁞{password}⟧@cluster0.{lo:5}.mongodb.net/?retryWrites=true | mongodb://{word}:⟦⁞{password}⟧@{host}:27017,{host}:27018/db?replicaSet=rs0
redis-url-password redis://:⟦⁞{password}⟧@{host}:6379/0 | rediss://default:⟦⁞{password}⟧@{host}:6380 | valkey://{word}:⟦⁞{password}⟧@{host}:6379
amqp-url-password amqp://{word}:⟦⁞{password}⟧@{host}:5672/%2F | amqps://{word}:⟦⁞{password}⟧@{host}/{word}
mssql-url-password mssql://sa:⟦⁞{password}⟧@{host}:1433/{word} | sqlserver://{word}:⟦⁞{password}⟧@{host}?database={word} | mssql+pyodbc://sa:⟦⁞{password}⟧@{host}/{word}
clickhouse-url-password clickhouse://default:⟦⁞{password}⟧@{host}:9000/{word} | clickhouse+native://{word}:⟦⁞{password}⟧@{host}/default
database-url-password bolt://neo4j:⟦⁞{password}⟧@{host}:7687 | neo4j+s://neo4j:⟦⁞{password}⟧@{host} | snowflake://{word}:⟦⁞{password}⟧@{lo:8}/{word} | nats://{word}:⟦⁞{password}⟧@{host}:4222 | cockroachdb://{word}:⟦⁞{password}⟧@{host}:26257/{word}
jdbc-password jdbc:postgresql://{host}:5432/{word}?user={word}&password=⟦⁞{password}⟧ | jdbc:sqlserver://{host}:1433;database={word};user=sa;password=⟦⁞{password}⟧ | jdbc:mysql://{host}/{word}?password=⟦⁞{password}⟧&useSSL=true
ado-password Server=tcp:{host},1433;Database={word};User ID={word};Password=⟦⁞{password}⟧;Encrypt=True | Data Source={host};Initial Catalog={word};uid=sa;pwd=⟦⁞{password}⟧; | Host={host};Username={word};Password=⟦⁞{password}⟧
planetscale-token pscale_tkn_⁞{b64u:43}
planetscale-password pscale_pw_⁞{b64u:43}
planetscale-oauth-token pscale_oauth_⁞{b64u:43}
supabase-token sbp_⁞{hex:40}
supabase-secret-key sb_secret_⁞{b64u:31}
neon-key napi_⁞{lo:64}
mongodb-atlas-secret mdb_sa_sk_⁞{b64u:40}
clickhouse-cloud-key 4b1d⁞{b62:38}
tinybird-token p.⁞eyJ1Ijoi{b64u:80}.{b64u:43}
confluent-secret cflt⁞{b64:60}
bearer-token Authorization: Bearer ⟦⁞{b62:40}⟧ | curl -H "Authorization: Bearer ⟦⁞{b64u:43}⟧" https://api.{word}.com | {"headers": {"authorization": "Bearer ⟦⁞{hex:40}⟧"}} | Bearer ⟦⁞{b64u:64}⟧ | bearer ⟦⁞{hex:32}⟧
basic-credentials Authorization: Basic ⟦⁞{userpass}⟧ | -H 'authorization: Basic ⟦⁞{userpass}⟧' | {"Authorization":"Basic ⟦⁞{userpass}⟧"} | Proxy-Authorization: Basic ⟦⁞{userpass}⟧
basic-credentials-bare = "Basic ⟦⁞{userpass}⟧" | : Basic ⟦⁞{userpass}⟧
authorization-header Authorization: token ⟦⁞{hex:40}⟧ | "Authorization": "ApiKey ⟦⁞{b64:58}==⟧" | authorization: GenieKey ⟦⁞{uuid}⟧ | Authorization: SSWS ⟦⁞00{b64u:40}⟧ | Authorization: Token token=⟦⁞{hex:40}⟧ | headers["Authorization"] = "⟦⁞{b62:40}⟧"
api-key-header x-api-key: ⟦⁞{b62:40}⟧ | -H "X-API-Key: ⟦⁞{hex:32}⟧" | "X-Api-Key": "⟦⁞{b64u:32}⟧" | PRIVATE-TOKEN: ⟦⁞{b64u:20}⟧ | Ocp-Apim-Subscription-Key: ⟦⁞{hex:32}⟧ | X-Vault-Token: ⟦⁞{uuid}⟧
url-password https://{word}:⟦⁞{password}⟧@{host}/v1 | http://admin:⟦⁞{password}⟧@{host}:8080/ | ftp://{word}:⟦⁞{password}⟧@{host}/{word} | smtp://{word}:⟦⁞{password}⟧@{host}:587 | git clone https://{word}:⟦⁞{b62:40}⟧@{host}/{word}.git | socks5://{word}:⟦⁞{password}⟧@{host}:1080
netrc-password machine {host} login {word} password ⟦⁞{password}⟧
session-cookie Cookie: theme=dark; connect.sid=⟦⁞s%3A{b64u:32}.{b64u:43}⟧; lang=en | Set-Cookie: JSESSIONID=⟦⁞{HEX:32}⟧; Path=/; HttpOnly | Cookie: PHPSESSID=⟦⁞{lo:26}⟧ | Cookie: sessionid=⟦⁞{lo:32}⟧; csrftoken=off | cookie: __Secure-next-auth.session-token=⟦⁞{uuid}⟧
jwe eyJ⁞hbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..{b64u:16}.{b64u:120}.{b64u:22} | eyJ⁞hbGciOiJSU0EtT0FFUCJ9.{b64u:342}.{b64u:16}.{b64u:80}.{b64u:22}
jwt {jwt} | {jwt}
rsa-private-key {pem:RSA PRIVATE KEY} | {pemcut:RSA PRIVATE KEY} | {pemenc:RSA PRIVATE KEY}
ec-private-key {pem:EC PRIVATE KEY} | {pemcut:EC PRIVATE KEY}
dsa-private-key {pem:DSA PRIVATE KEY}
openssh-private-key {pem:OPENSSH PRIVATE KEY} | {pemcut:OPENSSH PRIVATE KEY}
pkcs8-private-key {pem:PRIVATE KEY} | {pemcut:PRIVATE KEY}
encrypted-private-key {pem:ENCRYPTED PRIVATE KEY}
pgp-private-key {pgp:PGP PRIVATE KEY BLOCK}
other-private-key {pem:TSS2 PRIVATE KEY} | {pem:ED25519 PRIVATE KEY}
openvpn-static-key {pemhex:OpenVPN Static key V1}
putty-private-key PuTTY-User-Key-File-3: ssh-ed25519⏎Encryption: none⏎Private-Lines: 1⏎⟦⁞{b64s:44}⟧ | Private-Lines: 1⏎⟦⁞{b64s:48}⟧
base64-private-key LS0tLS1CRUdJTi⁞BSU0EgUFJJVkFURSBLRVktLS0tLQp{b64:400} | client-key-data: ⟦LS0tLS1CRUdJTi⁞BQUklWQVRFIEtFWS0tLS0tCk{b64:300}==⟧ | LS0tLS1CRUdJTi⁞BFQyBQUklWQVRFIEtFWS0tLS0tCk{b64:220}
age-secret-key AGE-SECRET-KEY-1⁞{BECH:58}
wireguard-key PrivateKey = ⟦⁞{wg}⟧ | PresharedKey = ⟦⁞{wg}⟧
hex-private-key PRIVATE_KEY=⟦⁞{hex:64}⟧ | DEPLOYER_PRIVATE_KEY=0x⟦⁞{hex:64}⟧ | "privateKey": "0x⟦⁞{hex:64}⟧"
bip32-private-key xprv⁞9s21ZrQH{b58:99} | tprv⁞8ZgxMBic{b58:99}
nostr-private-key nsec1⁞{bech:58}
"""
