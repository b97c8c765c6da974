//! The layers that let a request in or turn it away.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};
use futures_util::future::{BoxFuture, Either, FutureExt as _};
use http_body::Body as _;
use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tower::{Layer, Service};

use super::{ApiError, AppState, context::RequestContext, watch};
use crate::domain::{Caller, Denial, Kind};

/// Turns requests away while as many are in flight as may be. A streamed answer is in flight
/// until it ends; a whole one is no more work, however slowly its client takes it.
#[derive(Debug, Clone)]
pub(super) struct ShedLayer(pub AppState);

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, next: S) -> Shed<S> {
        Shed { state: self.0.clone(), next }
    }
}

/// See [`ShedLayer`].
#[derive(Debug, Clone)]
pub(super) struct Shed<S> {
    state: AppState,
    next: S,
}

impl<S> Service<Request> for Shed<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Admitted<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Admitted<S::Future> {
        let permit = Arc::clone(self.state.in_flight()).try_acquire_owned().ok();
        let answer = permit.is_some().then(|| self.next.call(request));
        Admitted { answer, permit }
    }
}

pin_project! {
    /// What [`Shed`] waits for.
    pub(super) struct Admitted<F> {
        // None: it is turned away.
        #[pin]
        answer: Option<F>,
        permit: Option<OwnedSemaphorePermit>,
    }
}

impl<F> Future for Admitted<F>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(answer) = this.answer.as_pin_mut() else { return Poll::Ready(Ok(overloaded())) };
        let mut response = ready!(answer.poll(context))?;
        let permit = this.permit.take().filter(|_| response.body().size_hint().exact().is_none());
        if let Some(permit) = permit {
            response.extensions_mut().insert(watch::InFlight::new(permit));
        }
        Poll::Ready(Ok(response))
    }
}

fn overloaded() -> Response {
    let message = "The gateway has as many requests as it can take; try again.";
    let denial = Denial::new(Kind::Overloaded, message).with_retry_after_ms(1_000);
    ApiError::from(denial).into_response()
}

/// Lets in only requests with a valid token, and makes their caller known.
#[derive(Debug, Clone)]
pub(super) struct AuthenticateLayer(pub AppState);

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, next: S) -> Authenticate<S> {
        Authenticate { state: self.0.clone(), next }
    }
}

/// See [`AuthenticateLayer`].
#[derive(Debug, Clone)]
pub(super) struct Authenticate<S> {
    state: AppState,
    next: S,
}

impl<S> Service<Request> for Authenticate<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    /// Most tokens were checked lately, and then nothing is waited for.
    type Future = Either<S::Future, BoxFuture<'static, Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.state.authenticator().recall(request.headers(), false) {
            Some(Ok(caller)) => {
                introduce(caller, &request);
                Either::Left(self.next.call(request))
            }
            Some(Err(error)) => {
                let refused = ApiError::from(error).into_response();
                Either::Right(std::future::ready(Ok(refused)).boxed())
            }
            None => {
                // The one that is ready, not its copy.
                let copy = self.next.clone();
                let next = std::mem::replace(&mut self.next, copy);
                Either::Right(check(self.state.clone(), request, next).boxed())
            }
        }
    }
}

async fn check<S>(state: AppState, request: Request, mut next: S) -> Result<Response, Infallible>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    match state.authenticator().authenticate(request.headers(), false).await {
        Ok(caller) => {
            introduce(caller, &request);
            next.call(request).await
        }
        Err(error) => Ok(ApiError::from(error).into_response()),
    }
}

fn introduce(caller: Arc<Caller>, request: &Request) {
    if let Some(context) = request.extensions().get::<RequestContext>() {
        context.set_caller(caller);
    }
}
