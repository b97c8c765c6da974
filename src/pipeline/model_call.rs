//! A model call, from its authorization to its end.

use std::{future::poll_fn, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    Authorized, CallContext, Ending, Gateway, OpenCall, Progress, Refused, Snapshot,
    answer::{self, AnswerStream},
    content::Exit,
    fault::{
        cut_short, not_passed_on, not_redacted, not_understood, panicked, shutting_down, too_long,
    },
    route, spend, stage,
};
use crate::{
    budget::Report,
    domain::{Denial, Kind, ModelCall},
    fail_point::FailPoint,
    provider::{ChunkView, Complete, Opened, Reply, sse::Event},
    redact::{Depth, Direction},
    stream::{
        HubFull, Lifeline, NativeStream, NativeWriter, Outlet, Owner, PassthroughWriter, Reader,
        Receiver, Seldom, channel,
    },
    telemetry::Scope,
};

/// Bytes of a stream that may wait for a client that reads slowly, before its provider waits too.
const WAITING_BYTES: usize = 64 << 10;

/// How long a client that does not read may keep the end of its call from being said.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A call's answer, as far as it decides the response's head.
#[derive(Debug)]
pub enum Head {
    /// The stream has begun.
    Stream,
    /// A whole answer, the provider's own: good, or its refusal.
    Complete(Complete),
    Refused(Box<Refused>),
}

/// A call under way: what its head will be, and how its buckets stand.
#[derive(Debug)]
pub struct Started {
    pub head: oneshot::Receiver<(Head, Option<Box<Report>>)>,
}

/// Everything the task needs that the story must not lose when it is dropped.
struct Telling {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    stream: bool,
    head: Option<oneshot::Sender<(Head, Option<Box<Report>>)>>,
    limits: Option<Box<Report>>,
    outlet: Option<Outlet>,
    /// Takes the secrets out of a stream. None: they are left in.
    redaction: Option<Box<AnswerStream>>,
    /// A whole answer, sent once the call is settled. Boxed: a stream has none.
    answer: Option<Box<Complete>>,
    /// The request's, for what is logged. Not entered while events are carried: few say anything.
    scope: Scope,
}

/// Begins a chat completion. The receiver is the response's body, or is held while a whole answer
/// is waited for: dropping it cancels the call.
pub fn start_chat(
    gateway: &Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    context: CallContext,
    authorized: Authorized<ModelCall>,
) -> (Started, Receiver) {
    let (sender, receiver) = channel(WAITING_BYTES);
    let lifeline = Lifeline::Connection(sender.watch());
    let call = authorized.call();
    let stream = call.stream;
    let outlet =
        stream.then(|| Outlet::Passthrough(PassthroughWriter::new(sender, call.include_usage)));
    let open = Box::new(OpenCall::new(context, authorized.model(), None, gateway.keeps_content));
    (spawn(gateway, snapshot, authorized, open, lifeline, outlet, stream), receiver)
}

/// Begins a native stream.
///
/// # Errors
/// [`HubFull`]: as many streams are live as may be.
pub fn start_native(
    gateway: &Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    context: CallContext,
    authorized: Authorized<ModelCall>,
) -> Result<(Started, Arc<NativeStream>, Option<Reader>), HubFull> {
    let owner = Owner::from(&*context.caller);
    let writer = NativeWriter::open(&gateway.hub, owner, authorized.model().name.clone())?;
    let stream = Arc::clone(writer.stream());
    // Read from the start on, so that the stream is not an orphan before its first frame.
    let reader = stream.read_after(0).ok();
    let orphan_timeout = gateway.orphan_timeout;
    let lifeline = Lifeline::Stream { stream: Arc::clone(&stream), orphan_timeout };
    let open = Box::new(OpenCall::new(
        context,
        authorized.model(),
        Some(stream.id()),
        gateway.keeps_content,
    ));
    let outlet = Some(Outlet::Native(writer));
    let started = spawn(gateway, snapshot, authorized, open, lifeline, outlet, true);
    Ok((started, stream, reader))
}

fn spawn(
    gateway: &Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    authorized: Authorized<ModelCall>,
    open: Box<OpenCall>,
    lifeline: Lifeline,
    outlet: Option<Outlet>,
    stream: bool,
) -> Started {
    let (head, receiver) = oneshot::channel();
    let gateway = Arc::clone(gateway);
    let tasks = gateway.calls.clone();
    let redaction = (stream && snapshot.redacts_answers).then(Box::default);
    let telling = Box::new(Telling {
        gateway,
        snapshot,
        stream,
        head: Some(head),
        limits: None,
        outlet,
        redaction,
        answer: None,
        scope: Scope::current(),
    });
    tasks.spawn(telling.run(open, Box::new(authorized), lifeline));
    Started { head: receiver }
}

impl Telling {
    /// Tells the story, unless something cuts it short, and ends the call either way.
    async fn run(
        mut self: Box<Self>,
        mut open: Box<OpenCall>,
        authorized: Box<Authorized<ModelCall>>,
        lifeline: Lifeline,
    ) {
        let gateway = Arc::clone(&self.gateway);
        let deadline = Instant::now() + gateway.request_timeout;
        let scope = self.scope.clone();
        let cut = Seldom::new(cut_short_by(lifeline, Arc::clone(&gateway), deadline));
        let ending = tokio::select! {
            biased;
            ending = cut => ending,
            told = AssertUnwindSafe(self.story(&mut open, authorized)).catch_unwind() => {
                told.unwrap_or_else(|_| Ok(Ending::Failed(scope.enter(panicked)))).unwrap_or_else(|ending| ending)
            }
        };
        let ending = self.let_go(&mut open, ending).redacted(&gateway.redactor);
        // Boxed: while a stream is open, its task has no use for this room.
        scope.run(Box::pin(self.end(open, &ending, deadline))).await;
    }

    /// Accounts for the call and settles it, tells its client how it ended, and writes its terminal row.
    async fn end(mut self: Box<Self>, mut open: Box<OpenCall>, ending: &Ending, deadline: Instant) {
        let gateway = Arc::clone(&self.gateway);
        open.context.failure.note(ending);
        open.account(&gateway.meter).await;
        open.content.redact_output(&gateway, self.snapshot.redacts_answers).await;
        FailPoint::BeforeSettle.hit();
        open.settle(&gateway).await;
        FailPoint::AfterSettle.hit();
        let conclusion = open.conclusion(ending);
        let answer = self.answer.take().map(|answer| Head::Complete(*answer)).or_else(|| {
            let refused = Refused {
                recorded: true,
                limits: self.limits.take(),
                model: open.model().map(str::to_owned),
                ..ending.denial()?.into()
            };
            Some(Head::Refused(Box::new(refused)))
        });
        let told = async {
            if let Some(head) = answer.filter(|_| self.head.is_some()) {
                self.send_head(head);
            } else if let Some(outlet) = self.outlet.take() {
                outlet.conclude(&conclusion).await;
            }
        };
        let told = async {
            tokio::select! {
                () = told => {}
                () = out_of_time(&gateway, deadline) => {}
            }
        };
        // The row first: whatever telling the client may come to, it is written.
        tokio::join!(open.record(&gateway.audit, ending), told);
    }

    /// The story of a call. Each step stands on the one before it.
    async fn story(
        &mut self,
        open: &mut OpenCall,
        authorized: Box<Authorized<ModelCall>>,
    ) -> Result<Ending, Ending> {
        // Boxed, as a stream is open for long after this and has no use for its room.
        let scope = self.scope.clone();
        let opened = match scope.run(Box::pin(self.send(open, authorized))).await {
            Ok(Reply::Stream(opened)) => opened,
            // Boxed: else each stream's task would have room for what a whole answer takes.
            Ok(Reply::Complete(complete)) => return Box::pin(self.keep(open, complete)).await,
            Err(ending) => return Err(ending),
        };
        if let Some(outlet) = &self.outlet {
            outlet.begin();
        }
        self.send_head(Head::Stream);
        self.pump(open, opened).await
    }

    /// From the call to the beginning of its answer. What was asked is gone after that: its bytes
    /// hold on to a connection's buffer.
    async fn send(
        &mut self,
        open: &mut OpenCall,
        authorized: Box<Authorized<ModelCall>>,
    ) -> Result<Reply, Ending> {
        let charges = spend::charges(&self.gateway, &self.snapshot, open, &authorized)?;
        FailPoint::BeforeIntent.hit();
        self.write_intent(open).await?;
        FailPoint::AfterIntent.hit();
        let weight = self.snapshot.limits.weight(&open.context.caller.tier);
        let (limits, reserved) = spend::reserve(&self.gateway, weight, open, charges).await;
        self.limits = Some(Box::new(limits));
        reserved?;
        FailPoint::AfterReserve.hit();
        let redacted = stage::redact(&self.gateway.offload, &self.snapshot, *authorized).await;
        let counts = match &redacted {
            Ok(redacted) => redacted.counts().clone(),
            Err(error) => error.counts(),
        };
        open.count_redactions(&self.gateway.redactions, Direction::Request, &counts);
        let redacted = redacted.map_err(|error| not_redacted(&error))?;
        open.content.note_input(&redacted);
        spend::depart(open).await?;
        FailPoint::BeforeEgress.hit();
        route::send(&redacted, open, self.stream)
            .await
            .map_err(|error| Ending::Failed(error.to_denial()))
    }

    async fn write_intent(&self, open: &OpenCall) -> Result<(), Ending> {
        self.gateway.audit.intent(open.intent()).await.map_err(|error| {
            tracing::error!(%error, "a call was refused: its intent could not be recorded");
            let message = "The audit trail cannot be written, so nothing is sent; try again.";
            Ending::Failed(Denial::new(Kind::AuditUnavailable, message).with_retry_after_ms(1_000))
        })
    }

    /// Keeps a whole answer until the call is settled.
    async fn keep(
        &mut self,
        open: &mut OpenCall,
        mut complete: Complete,
    ) -> Result<Ending, Ending> {
        let (noted, bytes) = (complete.clone(), complete.body.len());
        let noted =
            self.gateway.offload.run_for(bytes, move || Progress::of_complete(&noted)).await;
        open.progress.adopt(noted.map_err(|_| Ending::Failed(self.scope.enter(panicked)))?);
        let redactor = &self.snapshot.redactor;
        complete.drop_headers(|value| redactor.finds(value, Depth::Formats));
        let status = complete.status;
        let answer = if self.snapshot.redacts_answers {
            let redacted = answer::redact(&self.gateway.offload, &self.snapshot, complete).await;
            let (complete, counts) = redacted.map_err(|error| Ending::Failed(error.to_denial()))?;
            open.count_redactions(&self.gateway.redactions, Direction::Response, &counts);
            complete
        } else {
            complete
        };
        if status < 400 {
            open.content.note_whole(&answer.body);
        }
        self.answer = Some(Box::new(answer));
        Ok(if status < 400 { Ending::Completed } else { Ending::RefusedUpstream { status } })
    }

    fn send_head(&mut self, head: Head) {
        if let Some(sender) = self.head.take() {
            // The handler is gone if the client is; the lifeline says so.
            let _ = sender.send((head, self.limits.take()));
        }
    }

    /// Carries events from the provider to the client until the stream's end.
    async fn pump(&mut self, open: &mut OpenCall, opened: Opened) -> Result<Ending, Ending> {
        let Opened { first: mut batch, mut rest } = opened;
        loop {
            self.carry(open, &batch).await?;
            FailPoint::MidStream.hit();
            if open.progress.failed {
                return Ok(Ending::RefusedUpstream { status: Kind::UpstreamError.status() });
            }
            if open.progress.done {
                return Ok(Ending::Completed);
            }
            // Not held while waiting: its bytes are slices of a connection's buffer.
            batch.clear();
            // Room for one: what comes slowly comes so, and is waited for the longest.
            batch.shrink_to(1);
            match poll_fn(|context| rest.poll_events(context, &mut batch)).await {
                Ok(()) if !batch.is_empty() => {}
                Ok(()) if open.progress.is_complete() => return Ok(Ending::Completed),
                Ok(()) => return Err(Ending::Failed(cut_short())),
                Err(error) => {
                    self.scope.enter(|| tracing::warn!(%error, "a stream broke off"));
                    return Err(Ending::Failed(error.to_denial()));
                }
            }
        }
    }

    async fn carry(&mut self, open: &mut OpenCall, batch: &[Event]) -> Result<(), Ending> {
        let Some(outlet) = &mut self.outlet else { return Ok(()) };
        for event in batch {
            if event.is_done() {
                open.progress.done = true;
                break;
            }
            if event.data.trim_ascii().is_empty() {
                continue;
            }
            let view = ChunkView::parse(&event.data)
                .map_err(|error| self.scope.enter(|| not_understood(&error)))?;
            if view.is_blank() && event.name.is_some() {
                // A ping, or an error that is not in the shape of one.
                open.progress.failed |= event.is_named_error();
            } else {
                open.progress.note(&view);
                let mut exit = Exit { outlet, content: &mut open.content };
                let pushed = match &mut self.redaction {
                    None => exit.push(event, &view),
                    Some(redaction) => {
                        answer::pass(redaction, &self.snapshot.redactor, &mut exit, event, &view)
                    }
                };
                pushed.map_err(|error| self.scope.enter(|| not_passed_on(&error)))?;
            }
            if open.progress.failed {
                break;
            }
        }
        let gone = |_| Ending::Canceled(crate::domain::CancelReason::HungUp);
        outlet.flush().await.map_err(gone)
    }

    /// Lets go what redaction holds back of a stream, at its end. A stream whose end can't be told
    /// has failed.
    fn let_go(&mut self, open: &mut OpenCall, ending: Ending) -> Ending {
        let Some(mut redaction) = self.redaction.take() else { return ending };
        let redactor = &self.snapshot.redactor;
        let exit = self.outlet.as_mut();
        let exit = exit.map(|outlet| Exit { outlet, content: &mut open.content });
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| {
            exit.map_or(Ok(()), |mut exit| answer::let_go(&mut redaction, redactor, &mut exit))
        }));
        let counts = redaction.counts();
        open.count_redactions(&self.gateway.redactions, Direction::Response, counts);
        match told {
            Ok(Ok(())) => ending,
            Ok(Err(error)) => self.scope.enter(|| not_passed_on(&error)),
            Err(_) => Ending::Failed(self.scope.enter(panicked)),
        }
    }
}

/// Waits for what ends a call before its story is told.
async fn cut_short_by(lifeline: Lifeline, gateway: Arc<Gateway>, deadline: Instant) -> Ending {
    tokio::select! {
        biased;
        reason = lifeline.cut() => Ending::Canceled(reason),
        () = gateway.abort.cancelled() => Ending::Failed(shutting_down()),
        () = sleep_until(deadline) => Ending::Failed(too_long()),
    }
}

async fn out_of_time(gateway: &Gateway, deadline: Instant) {
    tokio::select! {
        () = gateway.abort.cancelled() => {}
        () = sleep_until(deadline) => {}
    }
    tokio::time::sleep(LAST_WORDS).await;
}
