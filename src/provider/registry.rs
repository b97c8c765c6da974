//! The models that the gateway offers and the providers that answer them.

use std::{collections::HashMap, sync::Arc};

use super::{OpenAi, Provider, Scripted};
use crate::{
    config::{Config, ModelConfig, ProviderConfig, ProviderKind},
    domain::{CapabilitySet, Price, Vocabulary},
    offload::Offload,
};

/// A model: its name, who may use it, what it costs, where it is answered.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    /// Any one of these admits; empty admits nobody.
    pub requires: CapabilitySet,
    pub price: Option<Price>,
    /// The most that it ever reads.
    pub max_input_tokens: Option<u64>,
    /// The most that it ever answers with.
    pub max_output_tokens: Option<u64>,
    pub routes: Vec<Route>,
}

/// One way to have a model answered.
#[derive(Clone)]
pub struct Route {
    pub provider: Arc<dyn Provider>,
    /// What the provider calls the model.
    pub model: String,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider.name(), self.model)
    }
}

/// Every model by name, in the configuration's order.
#[derive(Debug, Default)]
pub struct Registry {
    models: Vec<Arc<Model>>,
    by_name: HashMap<String, usize>,
}

/// A registry could not be built from a configuration.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("providers.{name}: {cause}")]
    Provider { name: String, cause: String },
    #[error("models.{model}: there is no provider `{provider}`")]
    UnknownProvider { model: String, provider: String },
    #[error("models.{model}.requires: `{capability}` is not in capabilities.vocabulary")]
    UnknownCapability { model: String, capability: String },
}

impl Registry {
    /// # Errors
    /// [`RegistryError`] names the key at fault.
    pub fn new(
        config: &Config,
        vocabulary: &Vocabulary,
        offload: &Offload,
    ) -> Result<Self, RegistryError> {
        let mut providers: HashMap<&str, Arc<dyn Provider>> = HashMap::new();
        for provider in &config.providers {
            providers.insert(&provider.name, build(provider, offload)?);
        }
        config.models.iter().map(|model| resolve(model, &providers, vocabulary)).collect()
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Model>> {
        self.by_name.get(name).map(|index| &self.models[*index])
    }

    /// The models that a caller with these capabilities may use.
    pub fn visible_to(&self, capabilities: &CapabilitySet) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter().filter(|model| model.requires.intersects(capabilities))
    }
}

impl FromIterator<Model> for Registry {
    fn from_iter<T: IntoIterator<Item = Model>>(models: T) -> Self {
        let mut registry = Self::default();
        for model in models {
            registry.by_name.insert(model.name.clone(), registry.models.len());
            registry.models.push(Arc::new(model));
        }
        registry
    }
}

fn build(config: &ProviderConfig, offload: &Offload) -> Result<Arc<dyn Provider>, RegistryError> {
    let refused = |cause: String| RegistryError::Provider { name: config.name.clone(), cause };
    match config.kind {
        ProviderKind::Openai => Ok(Arc::new(OpenAi::new(config, offload).map_err(refused)?)),
        ProviderKind::Scripted => Ok(Arc::new(Scripted::new(config, offload))),
        ProviderKind::Anthropic => Err(refused("kind `anthropic` is not in this version".into())),
    }
}

fn resolve(
    config: &ModelConfig,
    providers: &HashMap<&str, Arc<dyn Provider>>,
    vocabulary: &Vocabulary,
) -> Result<Model, RegistryError> {
    let requires = config.requires.iter().map(|name| {
        vocabulary.get(name).ok_or_else(|| RegistryError::UnknownCapability {
            model: config.name.clone(),
            capability: name.clone(),
        })
    });
    let routes = config.routes.iter().map(|route| {
        let provider = providers.get(route.provider.as_str()).cloned();
        let provider = provider.ok_or_else(|| RegistryError::UnknownProvider {
            model: config.name.clone(),
            provider: route.provider.clone(),
        })?;
        Ok(Route { provider, model: route.model.clone() })
    });
    Ok(Model {
        name: config.name.clone(),
        requires: requires.collect::<Result<_, _>>()?,
        price: config.price(),
        max_input_tokens: config.max_input_tokens,
        max_output_tokens: config.max_output_tokens,
        routes: routes.collect::<Result<_, _>>()?,
    })
}
