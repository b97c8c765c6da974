//! Every route, on one screen.

use axum::{
    Router,
    middleware::map_response,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use utoipa::OpenApi as _;
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{
    ApiError, AppState, audit, budgets,
    layers::{self, Sweeper},
    metrics,
    openai::{chat, models},
    openapi, ops, streams,
};
use crate::domain::Kind;

/// The operations that take a token. Their paths stand at their handlers and in the `OpenAPI`
/// document, which is made from this list; operation id = handler.
pub fn api() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::ApiDoc::openapi())
        // POST /v1/chat/completions
        .routes(routes!(chat::create_chat_completion))
        // GET /v1/models, GET /v1/models/{id}
        .routes(routes!(models::list_models))
        .routes(routes!(models::get_model))
        // GET /v1/budgets/me
        .routes(routes!(budgets::list_my_budgets))
        // GET /v1/audit, GET /v1/runs/{run_id}, GET /v1/usage
        .routes(routes!(audit::list_audit_entries))
        .routes(routes!(audit::get_run))
        .routes(routes!(audit::get_usage))
        // POST /v1/streams, GET and DELETE /v1/streams/{id}
        .routes(routes!(streams::create_stream))
        .routes(routes!(streams::resume_stream, streams::cancel_stream))
}

/// What is served on `server.listen`.
pub fn public_router(state: AppState, sweeper: &Sweeper) -> Router {
    let (governed, _) = api().split_for_parts();
    let governed = governed.route_layer(layers::governed(&state, sweeper));
    // Open to all: GET /openapi.json and /docs. The page would show strangers' servers a badge.
    let page = Config::from("/openapi.json").validator_url("none").try_it_out_enabled(true);
    let open = SwaggerUi::new("/docs").url("/openapi.json", openapi::document()).config(page);
    let open = Router::new().merge(open).layer(map_response(shield));
    Router::new()
        .merge(governed)
        .merge(open)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(layers::outer(&state, sweeper))
        .with_state(state)
}

/// What is served on `server.admin_listen`.
pub fn admin_router(state: AppState) -> Router {
    Router::new()
        .route("/livez", get(ops::livez))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/budgets", get(budgets::list_budgets))
        .with_state(state)
}

async fn not_found() -> ApiError {
    ApiError::new(Kind::NotFound, "There is no such route; GET /openapi.json lists them all.")
}

async fn method_not_allowed() -> ApiError {
    let message = "This route does not take this method; GET /openapi.json lists them all.";
    ApiError::new(Kind::MethodNotAllowed, message)
}

/// The page is the gateway's own origin: nothing from elsewhere, in no frame.
async fn shield(mut response: Response) -> Response {
    if response.status() == StatusCode::NOT_FOUND {
        // The page's own 404 is a bare text.
        response = not_found().await.into_response();
    }
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
        ),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
