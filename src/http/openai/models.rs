//! GET /v1/models and /v1/models/{id}: what the caller may use.

use axum::{Json, extract::State};

use crate::{
    domain::{Denial, Kind},
    http::{
        ApiError, AppState,
        extract::{Call, PathId},
        openapi::{
            answer::{Errors, ErrorsOfOne, Forbidden},
            schema::{ModelList, ModelObject},
        },
    },
    pipeline::Refused,
    provider::Model,
};

/// The models that the caller may use.
#[utoipa::path(
    get,
    path = "/v1/models",
    tag = "models",
    responses((status = 200, description = "The models", body = ModelList), Errors),
    security(("token" = [])),
)]
pub async fn list_models(State(state): State<AppState>, call: Call) -> Json<ModelList> {
    let snapshot = state.gateway().snapshot.load();
    let visible = snapshot.registry.visible_to(&call.caller().capabilities);
    Json(ModelList { object: "list", data: visible.map(|model| object(model)).collect() })
}

/// One model, if the caller may use it.
#[utoipa::path(
    get,
    path = "/v1/models/{id}",
    tag = "models",
    params(("id" = String, Path, description = "The model's name", example = "demo")),
    responses(
        (status = 200, description = "The model", body = ModelObject),
        Forbidden,
        ErrorsOfOne,
        Errors,
    ),
    security(("token" = [])),
)]
pub async fn get_model(
    State(state): State<AppState>,
    call: Call,
    PathId(id): PathId,
) -> Result<Json<ModelObject>, ApiError> {
    let snapshot = state.gateway().snapshot.load();
    let Some(model) = snapshot.registry.get(&id) else {
        let message = "There is no such model; GET /v1/models lists those you may use.";
        return Err(Denial::new(Kind::ModelNotFound, message).with_param("id").into());
    };
    if !model.requires.intersects(&call.caller().capabilities) {
        let message = format!("To use `{}` takes one of: {}.", model.name, model.requires);
        let denial = Denial::new(Kind::CapabilityDenied, message).with_param("id");
        return Err(ApiError::from(Refused {
            required: Some(model.requires.to_string()),
            model: Some(model.name.clone()),
            ..denial.into()
        }));
    }
    Ok(Json(object(model)))
}

fn object(model: &Model) -> ModelObject {
    ModelObject { id: model.name.clone(), object: "model", created: 0, owned_by: "tollgate" }
}
