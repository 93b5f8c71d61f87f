package org.openapitools.client;

import com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;

/** In place of the generated one, which needs Jackson's module for times. */
public class RFC3339JavaTimeModule extends JavaTimeModule {}
